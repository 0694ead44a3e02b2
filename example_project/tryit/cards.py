"""The cards of the page *Try it*: what each shows, and what its buttons do."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from random import uniform

from activity import recording
from djqueue import queues
from djqueue.enqueueing.command import Command
from tryit import commands, records
from tryit.models import Customer

ASKED, READINGS = 12, 34
ACCOUNTS, STEPS = "ABC", range(1, 6)


@dataclass(frozen=True)
class Card:
    """One feature."""

    command: Command
    title: str
    sees: str
    """What one sees, in a sentence or two."""
    draws: str
    """The drawing in tryit.js."""
    actions: dict[str, tuple[str, Callable[[str], object]]] = field(default_factory=dict)
    """By name: the text of a button, and what it does for a visitor."""
    single: bool = False
    """Whether the picture shows the last call only."""
    quiet: float = 6.0
    """A call that comes this many seconds after the last event begins a new picture."""

    @property
    def name(self) -> str:
        return self.command.__name__

    @property
    def source(self) -> str:
        return inspect.getsource(self.command.func).replace("  # fmt: skip", "").rstrip()


def save(visitor: str):
    records.call(visitor, commands.rebuild_page, [()])


def ask(visitor: str):
    numbers = range(1, ASKED + 1)
    records.call(visitor, commands.ask_supplier, [(number,) for number in numbers], [*map(str, numbers)])


def book(visitor: str):
    calls = [(account, step) for step in STEPS for account in ACCOUNTS]
    records.call(visitor, commands.book, calls, [f"{account}{step}" for account, step in calls])


def call_bank(visitor: str):
    records.call(visitor, commands.call_bank, [()])


def start_import(visitor: str):
    """Unless one is under way already."""
    last = records.latest(visitor, commands.import_rows)
    if last is None or last.status not in ("ready", "running"):
        records.call(visitor, commands.import_rows, [()])


def cancel_import(visitor: str):
    result = records.latest(visitor, commands.import_rows)
    if result and result.cancel():  # it had not begun, so it will tell nothing
        reason = "cancelled before it began"
        recording.record("discarded", commands.import_rows.name, id=result.id, queue_name="default", reason=reason)


def store(visitor: str):
    records.call(visitor, commands.store, [(uniform(15, 25),) for _ in range(READINGS)])


def send_invoice(visitor: str):
    """To a customer whose address is not known. The one that failed before is forgotten."""
    if last := records.latest(visitor, commands.send_invoice):
        queues[last.queue_name].failed.remove([last.id])
    Customer.objects.update_or_create(visitor=visitor, defaults={"address": ""})
    records.call(visitor, commands.send_invoice, [()])


def enter_address(visitor: str):
    """Mend the cause, and have the failed message run again: as an operator would by ``queue_errors retry``."""
    Customer.objects.filter(visitor=visitor).update(address="1 Main Street")
    if result := records.latest(visitor, commands.send_invoice):
        queues[result.queue_name].requeue([result.id])


CARDS = [
    Card(
        commands.rebuild_page,
        "Debounce",
        "Click as fast as you can. Each click is a tick, each run a block: few runs, and one after the last click.",
        "debounce",
        {"press": ("Save a change", save)},
    ),
    Card(
        commands.ask_supplier,
        "Throttle",
        f"{ASKED} calls at once. Each block is a start: there are never more than 3 in any 5 seconds.",
        "throttle",
        {"press": (f"Ask {ASKED} times", ask)},
    ),
    Card(
        commands.book,
        "Shards, in order",
        "Five steps for each of three accounts. The accounts run side by side, the steps of one in their order.",
        "shards",
        {"press": ("Book 15 steps", book)},
    ),
    Card(
        commands.store,
        "Batch",
        f"{READINGS} calls, one for each reading. Each column is a run: it inserts up to ten of them at once.",
        "batch",
        {"press": (f"Store {READINGS} readings", store)},
    ),
    Card(
        commands.call_bank,
        "Retries with backoff",
        "Each circle is an attempt. After one that fails, the wait for the next grows: 1, 2, 4 seconds.",
        "attempts",
        {"press": ("Call the bank", call_bank)},
        single=True,
    ),
    Card(
        commands.send_invoice,
        "Failure and retry",
        "The customer has no address, so the command fails. The message is kept with its reason until that is mended.",
        "attempts",
        {"press": ("Send an invoice", send_invoice), "mend": ("Enter the address and retry", enter_address)},
        single=True,
    ),
    Card(
        commands.import_rows,
        "Progress and cancel",
        "The command says how far it is, and looks whether it is cancelled. The web page reads both.",
        "progress",
        {"press": ("Import 100 rows", start_import), "cancel": ("Cancel", cancel_import)},
        single=True,
    ),
    Card(
        commands.tidy_up,
        "Periodic",
        "No button: the consumer starts this one every 30 seconds. It deletes the old records of this page.",
        "periodic",
    ),
]
BY_NAME = {card.name: card for card in CARDS}
