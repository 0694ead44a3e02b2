"""The commands of the page “Try it”, which shows their source. A sleep stands for the work."""

from random import uniform
from time import sleep

from django.utils import timezone

from djqueue import Backoff, Batch, Discard, Throttle, current_message, periodic_command, queue_command
from tryit import records
from tryit.models import Customer, Reading


@queue_command(debounce=4)
def rebuild_page(visitor):
    """At most one run in 4 seconds."""
    sleep(0.5)


@queue_command(
    throttle=Throttle(3, 5, key=lambda visitor, **_: visitor),
)
def ask_supplier(visitor, number):
    """At most 3 starts in 5 seconds."""
    sleep(0.3)


@queue_command(
    shard=lambda visitor, account, **_: f"{visitor} {account}",
)
def book(visitor, account, step):
    """One after the other for an account."""
    sleep(uniform(0.4, 1.2))


@queue_command(
    retry_on=[ConnectionError],
    retries=5,
    backoff=Backoff(first=1),
)
def call_bank(visitor):
    """The fourth call is answered."""
    sleep(0.3)
    if current_message().attempt < 4:
        raise ConnectionError("The bank does not answer.")


@queue_command(result_ttl=600)
def import_rows(visitor):
    """Say how far it is; stop if told so."""
    message = current_message()
    for row in range(100):
        if message.cancelled:
            raise Discard(f"cancelled after {row} rows")
        sleep(0.1)
        message.progress(row + 1, 100)


@queue_command(batch=Batch(10, min_size=10, timeout=2))
def store(readings):
    """One INSERT for up to ten calls."""
    now = timezone.now()
    Reading.objects.bulk_create(
        Reading(visitor=visitor, value=value, stored=now)
        for (visitor, value), _ in readings
    )  # fmt: skip


@queue_command
def send_invoice(visitor):
    """Without an address it fails."""
    customer = Customer.objects.get(visitor=visitor)
    if not customer.address:
        raise ValueError(f"{customer} has no address.")


@periodic_command(every=30)
def tidy_up():
    """Every 30 seconds: forget old records."""
    records.prune()
