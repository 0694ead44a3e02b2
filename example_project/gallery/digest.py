"""The digest: one file a day, written over again as the day goes on."""

from pathlib import Path

from django.conf import settings
from django.utils import timezone

from gallery.models import Comment, Photo
from gallery.pictures import replacing


def write() -> Path:
    """Write today's digest; its path."""
    now = timezone.localtime()
    path = Path(settings.DIGEST_DIR) / f"{now:%Y-%m-%d}.txt"
    with replacing(path) as file:
        file.write(text(now).encode())
    return path


def text(now) -> str:
    """What happened on the day of ``now``."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    photos = Photo.objects.filter(uploaded__gte=midnight).order_by("pk")
    comments = Comment.objects.filter(posted__gte=midnight)
    shown = comments.filter(state=Comment.State.VISIBLE).select_related("photo")
    lines = [
        f"Digest of {now:%A, %d %B %Y}, written at {now:%H:%M} {now.tzname()}",
        f"New photos: {photos.count()}",
        *(f"  {photo.title}" for photo in photos[:50]),
        f"New comments: {shown.count()} shown, {comments.filter(state=Comment.State.SPAM).count()} taken for spam",
        *(f"  {comment.author} on “{comment.photo}”" for comment in shown[:50]),
    ]
    return "\n".join(lines) + "\n"


def latest() -> str:
    """The newest digest."""
    files = sorted(Path(settings.DIGEST_DIR).glob("*.txt"))
    return files[-1].read_text() if files else "None has been written yet."
