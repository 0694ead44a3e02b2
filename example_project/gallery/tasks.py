"""What the site leaves to the queue by Django's own tasks: the same queues hold them, and the same consumer runs them.

On Django 6 ``from django.tasks import task`` would do as well; djqueue's has the options of ``queue_command`` too.
"""

from django.core.mail import EmailMessage

from djqueue import task
from gallery.models import Comment


@task(takes_context=True)
def tell_owner(context, comment_id: int):
    """Send the owner of a photo an e-mail about a comment, if the owner has an address."""
    comment = Comment.objects.select_related("photo__owner").get(pk=comment_id)
    if not comment.photo.owner.email:
        return
    EmailMessage(
        subject=f"{comment.author} commented on “{comment.photo}”",
        body=f"{comment.text}\n\n{comment.photo.get_absolute_url()}\n",
        to=[comment.photo.owner.email],
        # The same at every attempt, so that a mail that is sent twice is read once.
        headers={"Message-ID": f"<{context.task_result.id}@gallery.example.com>"},
    ).send()
