"""What can be wrong with a queue at SQS."""

from __future__ import annotations

from collections.abc import Iterable

from botocore.exceptions import BotoCoreError, ClientError
from django.core.checks import CheckMessage, Error, Warning

from djqueue.backends.sqs.connection import Link, is_hidden
from djqueue.backends.sqs.protocol import LONGEST_KEPT
from djqueue.backends.stores import BaseStore, NoStore
from djqueue.exceptions import InvalidQueueError


def check_links(links: Iterable[Link]) -> list[CheckMessage]:
    """Of a queue and its error queue. Connects. Says nothing of what SQS lets nobody see."""
    return [message for link in links for message in _check(link)]


def _check(link: Link) -> list[CheckMessage]:
    try:
        found = link.attributes("RedrivePolicy", "MessageRetentionPeriod")
    except InvalidQueueError:
        hint = "Create it, or let djqueue do that with OPTIONS['CREATE'] = True."
        return [Error(f"There is no {link.where}.", hint=hint, id="djqueue.E302")]
    except (BotoCoreError, ClientError) as error:
        if is_hidden(error):
            return []
        hint = "Correct CONNECTION, or what boto3 finds: region, credentials, network."
        return [Error(f"{link.where} cannot be reached: {error}", hint=hint, id="djqueue.E301")]
    return [*_redrive(link, found), *_retention(link, found)]


def check_store(described: str, store: BaseStore | None) -> list[CheckMessage]:
    """Of a FIFO queue."""
    if store is not None and not isinstance(store, NoStore):
        return []
    hint = "Give it a STORE: there it notes what it gives back, as nobody can write on a message."
    return [Error(f"{described} is a FIFO queue without a store.", hint=hint, id="djqueue.E303")]


def _redrive(link: Link, found: dict) -> list[CheckMessage]:
    if not found.get("RedrivePolicy"):
        return []
    hint = "Remove its RedrivePolicy: djqueue counts starts itself, and moves to its error queue, with the reason."
    return [Warning(f"SQS moves messages out of {link.where} by itself.", hint=hint, id="djqueue.W301")]


def _retention(link: Link, found: dict) -> list[CheckMessage]:
    seconds = int(found.get("MessageRetentionPeriod", LONGEST_KEPT))
    if seconds >= LONGEST_KEPT:
        return []
    text = f"{link.where} forgets what waits longer than {seconds / 86_400:.3g} days."
    return [Warning(text, hint=f"Set its MessageRetentionPeriod to {LONGEST_KEPT}.", id="djqueue.W302")]
