"""Photos, their thumbnails, and comments."""

from pathlib import Path

from django.conf import settings
from django.db import models
from django.urls import reverse


class Photo(models.Model):
    """A picture as it was uploaded. Only its thumbnails are ever shown."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="photos")
    title = models.CharField(max_length=200)
    file = models.FileField(upload_to="photos/")
    uploaded = models.DateTimeField(auto_now_add=True)
    problem = models.CharField(max_length=200, blank=True)
    """Why no thumbnails could be made, if so."""
    failed_message = models.CharField(max_length=64, blank=True)
    """The id of the message that failed with it."""

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return self.title

    def get_absolute_url(self) -> str:
        return reverse("photo", args=[self.pk])


class Thumbnail(models.Model):
    """A thumbnail whose file is there."""

    photo = models.ForeignKey(Photo, models.CASCADE, related_name="thumbnails")
    size = models.CharField(max_length=20)
    width = models.PositiveIntegerField()
    height = models.PositiveIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["photo", "size"], name="gallery_one_thumbnail_per_size")]

    def __str__(self) -> str:
        return f"{self.name} ({self.width} × {self.height})"

    @property
    def name(self) -> str:
        """Its path below the folder of all thumbnails."""
        return thumbnail_name(self.photo_id, self.size)

    @property
    def path(self) -> Path:
        return thumbnail_path(self.photo_id, self.size)

    @property
    def url(self) -> str:
        return reverse("thumbnail", args=[self.name])


def thumbnail_name(photo_id: int, size: str) -> str:
    return f"{photo_id}/{size}.jpg"


def thumbnail_path(photo_id: int, size: str) -> Path:
    return Path(settings.MEDIA_ROOT) / "thumbs" / thumbnail_name(photo_id, size)


class Comment(models.Model):
    """What a visitor says of a photo. Only visible ones are shown to others."""

    class State(models.TextChoices):
        WAITING = "waiting", "waits for the spam check"
        VISIBLE = "visible", "visible"
        SPAM = "spam", "taken for spam"

    photo = models.ForeignKey(Photo, models.CASCADE, related_name="comments")
    author = models.CharField(max_length=80)
    text = models.TextField(max_length=2000)
    posted = models.DateTimeField(auto_now_add=True)
    state = models.CharField(max_length=10, choices=State, default=State.WAITING)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"{self.author} on {self.photo}"
