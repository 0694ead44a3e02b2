"""The demo at one go: pictures and comments through the site, the queue drained, and a look at what came of it."""

from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from PIL import Image

from activity.reports import counts
from gallery.commands import write_digest
from gallery.models import Comment, Photo
from processes import manage
from visitor import Visitor

COMMENTED = 20
"""No more photos than this get a comment."""
SPAM = "You are the WINNER of our lottery! https://cheap.example/casino"


def bring(visitor: Visitor, photos: Path | None, own: Path, owner: str) -> int:
    """Put pictures in, ours through the form for uploads, and comments; how many comments."""
    if photos:
        call_command("load_photos", photos, owner=owner)
    else:
        for file in sorted(own.glob("*.jpg")):
            visitor.upload("/upload/", "file", file)
    return _comment(visitor)


def _comment(visitor: Visitor) -> int:
    """Each photo gets praise, the newest one an advertisement as well."""
    photos = list(Photo.objects.all()[:COMMENTED])
    for photo in photos:
        visitor.post(photo.get_absolute_url(), author="Ada", text=f"How well “{photo}” came out!")
    for photo in photos[:1]:
        visitor.post(photo.get_absolute_url(), author="Best Prices", text=SPAM)
    return len(photos) + len(photos[:1])


def drain() -> None:
    """Run all that waits; then the digest, as the scheduler has it run when its time has come."""
    manage("queue_consumer", "--drain", "--no-periodic")
    write_digest.enqueue()
    manage("queue_consumer", "--drain", "--no-periodic")


def report(visitor: Visitor, comments: int) -> list[str]:
    """Print what was made; returns what is missing."""
    parts = (_thumbnails(visitor), _comments(comments), _mails(), _digest(), _queues())
    return [missing for part in parts for missing in part]


def _thumbnails(visitor: Visitor) -> Iterator[str]:
    photos = Photo.objects.order_by("pk").prefetch_related("thumbnails")
    if not photos:
        yield "a photo"
    for photo in photos:
        print(f"{photo}: {photo.problem or photo.file.name}")
        made = {thumbnail.size: thumbnail for thumbnail in photo.thumbnails.all()}
        for size in settings.THUMBNAIL_SIZES if not photo.problem else ():
            if size not in made:
                yield f"the {size} thumbnail of “{photo}”"
                continue
            yield from _one_thumbnail(visitor, made[size])


def _one_thumbnail(visitor: Visitor, thumbnail) -> Iterator[str]:
    with Image.open(thumbnail.path) as image:
        width, height = image.size
    print(f"    {thumbnail.size:8}{width:5} × {height:<5}{thumbnail.path.stat().st_size:>8} bytes  {thumbnail.path}")
    if (width, height) != (thumbnail.width, thumbnail.height):
        yield f"{thumbnail} is {width} × {height}"
    if visitor.get(thumbnail.url) != thumbnail.path.read_bytes():
        yield f"{thumbnail} on the site"


def _comments(expected: int) -> Iterator[str]:
    states = list(Comment.objects.values_list("state", flat=True))
    shown, spam = states.count(Comment.State.VISIBLE), states.count(Comment.State.SPAM)
    print(f"Comments: {shown} shown, {spam} taken for spam")
    if (shown, spam) != (max(0, expected - 1), min(1, expected)):
        yield f"of {expected} comments all but one should be shown, one be spam"


def _mails() -> Iterator[str]:
    """One for each comment that is shown."""
    folder, expected = Path(settings.MAIL_DIR), Comment.objects.filter(state=Comment.State.VISIBLE).count()
    subjects = [text.count("Subject: ") for text in (file.read_text() for file in folder.glob("*"))]
    print(f"E-mails: {sum(subjects)} in {folder}")
    if sum(subjects) != expected:
        yield f"{expected - sum(subjects)} of {expected} e-mails"


def _digest() -> Iterator[str]:
    files = sorted(Path(settings.DIGEST_DIR).glob("*.txt"))
    for file in files:
        print(f"Digest: {file}", *(f"    {line}" for line in file.read_text().splitlines()), sep="\n")
    if not files:
        yield "the digest"


def _queues() -> Iterator[str]:
    broken = Photo.objects.exclude(problem="").count()
    for row in counts():
        print(f"Queue {row['alias']}:", ", ".join(f"{count} {name}" for name, count in row.items() if name != "alias"))
        if row["ready"] or row["delayed"] or row["running"]:
            yield f"the rest of the queue {row['alias']}"
        if row["failed"] and not (broken and row["alias"] == "pictures"):
            yield f"{row['failed']} messages of the queue {row['alias']}, which failed"
