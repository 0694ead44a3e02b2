"""A snippet with a picture, for Wagtail."""

from django.db import models
from wagtail.snippets.models import register_snippet


@register_snippet
class Card(models.Model):
    picture = models.ForeignKey("wagtailimages.Image", null=True, on_delete=models.SET_NULL, related_name="+")

    def __str__(self):
        return f"Card {self.pk}"
