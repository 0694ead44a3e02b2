"""What the pages show, as plain values: for a template, or as JSON for the script that keeps a page up to date."""

from collections.abc import Collection

from django.conf import settings
from django.db.models import Q

from activity import reports as activity
from gallery import digest
from gallery.models import Comment, Photo

NEWEST = 60


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
        "problem": photo.problem,
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
        "problem": state["problem"],
        "failed_message": photo.failed_message,
        "status": state["status"],
        "sizes": [f"{size}: {thumbnail.width} × {thumbnail.height}" for size, thumbnail in thumbnails.items()],
        "comments": [_comment(comment) for comment in comments],
        "waiting": state["waiting"] or comments.filter(state=Comment.State.WAITING).exists(),
    }


def queues() -> dict:
    """The counts of the queues, and what happened lately."""
    rows = activity.counts()
    waiting = any(row["ready"] or row["delayed"] or row["running"] for row in rows)
    return {"queues": rows, "activity": activity.activity(), "digest": digest.latest(), "waiting": waiting}


def _comment(comment: Comment) -> dict:
    visible = comment.state == Comment.State.VISIBLE
    return {
        "id": comment.pk,
        "author": comment.author,
        "text": comment.text,
        "state": comment.state,
        "label": "" if visible else comment.get_state_display(),
    }
