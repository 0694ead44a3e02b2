"""The latest events of all commands, for the pages of the site."""

from django.db import models


class Event(models.Model):
    """A moment in the life of a message, named like the signal of djqueue that told of it."""

    kind = models.CharField(max_length=20)
    command = models.CharField(max_length=80)
    """The name of the function, without its module."""
    queue = models.CharField(max_length=40)
    message = models.CharField(max_length=64, db_index=True)
    attempt = models.PositiveIntegerField(default=0)
    at = models.FloatField(db_index=True)
    """Seconds since the epoch."""
    seconds = models.FloatField(null=True)
    """How long a completed attempt took, or the wait until the next one."""
    reason = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["at", "pk"]

    def __str__(self) -> str:
        return f"{self.command} {self.kind}"
