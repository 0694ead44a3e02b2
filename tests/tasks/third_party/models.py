"""A snippet with a picture, for Wagtail."""

from django.db import models
from wagtail.models import DraftStateMixin, RevisionMixin
from wagtail.search import index
from wagtail.snippets.models import register_snippet


@register_snippet
class Card(index.Indexed, DraftStateMixin, RevisionMixin, models.Model):
    title = models.CharField(max_length=50, default="A card")
    picture = models.ForeignKey("wagtailimages.Image", null=True, on_delete=models.SET_NULL, related_name="+")

    search_fields = (index.SearchField("title"),)

    def __str__(self):
        return f"Card {self.pk}"
