"""The calls of visitors on the page *Try it*. Their attempts are in activity.Event."""

from django.db import models


class Call(models.Model):
    """A command that a visitor called."""

    visitor = models.CharField(max_length=32)
    command = models.CharField(max_length=80)
    message = models.CharField(max_length=64, db_index=True)
    label = models.CharField(max_length=40, blank=True)
    enqueued = models.BooleanField(default=True)
    """False if another call stands for it."""
    at = models.FloatField(db_index=True)
    """Seconds since the epoch."""

    class Meta:
        ordering = ["at", "pk"]
        indexes = [models.Index(fields=["visitor", "command"], name="tryit_call_of_visitor")]

    def __str__(self) -> str:
        return f"{self.command} {self.label}".strip()


class Reading(models.Model):
    """A row that the batch command inserts."""

    visitor = models.CharField(max_length=32, db_index=True)
    value = models.FloatField()
    stored = models.DateTimeField()
    """The same for all rows of one insert."""

    def __str__(self) -> str:
        return f"{self.value:.1f}"


class Customer(models.Model):
    """The customer of a visitor: an invoice fails without an address."""

    visitor = models.CharField(max_length=32, unique=True)
    address = models.CharField(max_length=80, blank=True)

    def __str__(self) -> str:
        return f"Customer {self.pk}"
