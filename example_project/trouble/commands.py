"""Commands of a shop, each with a trouble of its own. A sleep stands for the work."""

from time import sleep

from djqueue import Backoff, Throttle, current_message, queue_command
from trouble import outage

RATES = {"EUR": 1.0, "GBP": 1.17, "USD": 0.92}


@queue_command
def count_visit(page):
    """It does what it should."""
    sleep(0.02)


@queue_command(sensitive=["address"], describe=lambda order, address: f"order {order}")
def send_parcel(order, address):
    """It fails while the services are away."""
    outage.check("The parcel service", f"order {order}")


@queue_command(describe=lambda order, amount, currency: f"order {order}")
def write_bill(order, amount, currency):
    """A fault: it fails for each currency that RATES does not have."""
    return round(amount * RATES[currency], 2)


@queue_command(throttle=Throttle(3, 30))
def ask_customs(parcel):
    """At most 3 starts in 30 seconds."""
    sleep(0.1)


@queue_command(shard=lambda warehouse, step: warehouse, retry_on=[ConnectionError], retries=9, backoff=Backoff(300))
def book_stock(warehouse, step):
    """One after the other for a warehouse, whose first call waits for its retry while the services are away."""
    outage.check("The warehouse", f"step {step} of {warehouse}")


@queue_command
def send_newsletter(reader):
    """It is paused."""
    sleep(0.1)


@queue_command
def cut_film(album, seconds):
    """It runs long, and looks whether it is cancelled."""
    message = current_message()
    for step in range(10 * seconds):
        if message.cancelled:
            return
        sleep(0.1)
        message.progress(step + 1, 10 * seconds)
