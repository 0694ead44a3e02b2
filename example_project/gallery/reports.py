"""What the pages show, as plain values: for a template, or as JSON for the script that keeps a page up to date."""

from collections.abc import Collection

from django.conf import settings
from django.db.models import Q

from djqueue import queues
from gallery.models import Comment, Photo

NEWEST = 60
COUNTS = ("ready", "delayed", "leased", "failed", "done")


def gallery() -> dict:
    """The newest photos."""
    photos = Photo.objects.prefetch_related("thumbnails")[:NEWEST]
    cards = [card(photo) for photo in photos]
    return {"photos": cards, "waiting": any(card["waiting"] for card in cards)}


def card(photo: Photo) -> dict:
    """One photo in the gallery."""
    made = {thumbnail.size: thumbnail for thumbnail in photo.thumbnails.all()}
    missing = [size for size in settings.THUMBNAIL_SIZES if size not in made]
    return {
        "id": photo.pk,
        "title": photo.title,
        "url": photo.get_absolute_url(),
        "thumbnail": made["small"].url if "small" in made else "",
        "waiting": bool(missing) and not photo.problem,
        "status": photo.problem or (f"{len(made)} of {len(settings.THUMBNAIL_SIZES)} thumbnails" if missing else ""),
    }


def photo(photo: Photo, mine: Collection[int]) -> dict:
    """One photo on its own page, with its comments; ``mine`` are those of this visitor."""
    thumbnails = {thumbnail.size: thumbnail for thumbnail in photo.thumbnails.all()}
    shown = next((thumbnails[size] for size in ("large", "medium", "small") if size in thumbnails), None)
    ours = Q(pk__in=mine) & ~Q(state=Comment.State.VISIBLE)
    comments = photo.comments.filter(Q(state=Comment.State.VISIBLE) | ours)
    state = card(photo)
    return {
        "picture": shown.url if shown else "",
        "status": state["status"],
        "sizes": [f"{size}: {thumbnail.width} × {thumbnail.height}" for size, thumbnail in thumbnails.items()],
        "comments": [_comment(comment) for comment in comments],
        "waiting": state["waiting"] or comments.filter(state=Comment.State.WAITING).exists(),
    }


def queue_counts() -> dict:
    """How many messages there are of each state in each queue."""
    rows = []
    for alias in queues:
        stats = queues[alias].stats()
        rows.append({"alias": alias, **{name: getattr(stats, name) for name in COUNTS}})
    return {"queues": rows, "waiting": True}


def _comment(comment: Comment) -> dict:
    visible = comment.state == Comment.State.VISIBLE
    return {
        "id": comment.pk,
        "author": comment.author,
        "text": comment.text,
        "state": comment.state,
        "label": "" if visible else comment.get_state_display(),
    }
