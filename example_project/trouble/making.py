"""Trouble of each kind, for those who want to find it in the dashboard; and its end."""

from itertools import product

from djqueue import operations
from trouble import commands, outage

WHY = "the mail server is being moved"
PARCELS, QUESTIONS, LETTERS, STEPS = 5, 12, 6, 5
WAREHOUSES = ("north", "south")
FILM = 300  # seconds


def make(by: str) -> None:
    """Failures with two errors, a throttle that is full, two blocked lanes, a paused command, and a long run."""
    outage.begin()
    operations.pause("command", commands.send_newsletter.name, why=WHY, by=by)
    commands.cut_film.enqueue("Summer", FILM)
    commands.send_parcel.enqueue_many([(order, f"{order} Main Street") for order in range(1, PARCELS + 1)])
    commands.write_bill.enqueue_many([(7, 19.9, "GPB"), (8, 45.0, "EUR"), (9, 12.5, "GPB")])
    commands.ask_customs.enqueue_many([(parcel,) for parcel in range(1, QUESTIONS + 1)])
    commands.book_stock.enqueue_many([*product(WAREHOUSES, range(1, STEPS + 1))])
    # Consumers notice a pause within a second.
    commands.send_newsletter.using(delay=2).enqueue_many([(f"reader {number}",) for number in range(1, LETTERS + 1)])


def load(number: int) -> None:
    """One call or two of a site that is in use. Each tenth parcel and each fortieth bill meets trouble."""
    commands.count_visit.enqueue(f"/photos/{number}/")
    if number % 10 == 0:
        commands.send_parcel.enqueue(100 + number, f"{number} High Street")
    if number % 40 == 1:
        commands.ask_customs.enqueue(100 + number)
    if number % 40 == 0:
        commands.write_bill.enqueue(100 + number, 5.0, "GPB")


def end(by: str) -> None:
    """The services answer again, and newsletters are sent. What has failed waits for its retry."""
    outage.end()
    operations.resume("command", commands.send_newsletter.name, by=by)
