"""What visitors do, each with the work that it leaves to the queue."""

from django.conf import settings
from django.core.files import File
from django.db import transaction

from gallery.commands import check_for_spam, make_thumbnail
from gallery.models import Comment, Photo


def add_photo(owner, title: str, file: File) -> Photo:
    """Keep a photo and have its thumbnails made. Both happen or neither does."""
    with transaction.atomic():
        photo = Photo.objects.create(owner=owner, title=title, file=file)
        make_thumbnail.enqueue_many([(photo, size) for size in settings.THUMBNAIL_SIZES])
    return photo


def add_comment(photo: Photo, author: str, text: str) -> Comment:
    """Keep a comment and have it checked. Both happen or neither does."""
    with transaction.atomic():
        comment = Comment.objects.create(photo=photo, author=author, text=text)
        check_for_spam(comment)
    return comment
