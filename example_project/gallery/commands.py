"""What the site leaves to the queue. djqueue finds this module by its name, in every installed app.

A command may run twice, if its worker is killed at the wrong moment: each of these then makes the same once more.
"""

from django.conf import settings
from django.db import transaction

from djqueue import crontab, current_message, periodic_command, queue_command
from gallery import digest, spam
from gallery.models import Comment, Photo, Thumbnail
from gallery.pictures import Unreadable, make_smaller
from gallery.tasks import tell_owner

# By reference: the row is read again when the command runs, so nothing that changed in between is written back.
# What describe= returns is in the log of the consumer and in the list of failed messages.


@queue_command(queue_name="pictures", models="reference", describe=lambda photo, size: f"{photo}, {size}")
def make_thumbnail(photo: Photo, size: str):
    """Make one thumbnail. A file that is no picture goes to the failed queue, and its page says so."""
    message = current_message()
    try:
        width, height = make_smaller(photo, size)
    except Unreadable:
        problem = "This file is not a picture that can be read."
        Photo.objects.filter(pk=photo.pk).update(problem=problem, failed_message=message.id if message else "")
        raise
    Photo.objects.filter(pk=photo.pk).exclude(problem="").update(problem="", failed_message="")
    Thumbnail.objects.update_or_create(photo=photo, size=size, defaults={"width": width, "height": height})


@queue_command(models="reference", priority=10, describe=str)
def check_for_spam(comment: Comment):
    """Show the comment and tell the owner of the photo, unless it is spam. A second run changes nothing."""
    is_spam = spam.looks_like_spam(comment.text)
    state = Comment.State.SPAM if is_spam else Comment.State.VISIBLE
    with transaction.atomic():
        changed = Comment.objects.filter(pk=comment.pk, state=Comment.State.WAITING).update(state=state)
        if changed and not is_spam:
            tell_owner.enqueue(comment.pk)


@periodic_command(crontab(**settings.DIGEST_TIMES))
def write_digest():
    """Write down what happened today."""
    digest.write()
