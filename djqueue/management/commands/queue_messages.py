"""``django-admin queue_messages``: which messages wait, run or have failed, and actions on them."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Mapping

from django.core.management.base import CommandError

from djqueue.backends.base import BaseQueue
from djqueue.management import messages as shown
from djqueue.management.changing import WHICH, MessagesCommand
from djqueue.operations.acting import OF_MESSAGES
from djqueue.operations.filters import ENQUEUED
from djqueue.operations.messages import STATES
from djqueue.operations.reports import as_json


class Command(MessagesCommand):
    states, noun, moment, actions = STATES, "message", ENQUEUED, OF_MESSAGES
    verbs = {
        "list": "the messages, a line for each",
        "show": "one message with what went wrong at its attempts",
        **{name: one.help for name, one in OF_MESSAGES.items()},
    }
    more = dict.fromkeys(OF_MESSAGES, WHICH)
    help = (
        "Shows the messages that are ready, delayed, running or failed, and changes them. Arguments are not "
        "decoded, but for 'show --arguments'."
    )
    examples = """
        manage.py queue_messages list -q mail                     what is in this queue
        manage.py queue_messages list --state delayed --command charge
        manage.py queue_messages show 01d4f3a9 --arguments
        manage.py queue_messages run-now 01d4f3a9                 do not wait for its retry
        manage.py queue_messages cancel --command 'shop.*' --older 2h
        manage.py queue_messages reprioritise --priority 9 --command charge
        manage.py queue_messages move --to slow --command resize  run it elsewhere
        manage.py queue_messages remove --help                    the options of a verb
    """

    def add_others(self, of: Mapping[str, ArgumentParser]) -> None:
        for verb in ("list", *OF_MESSAGES):
            states = OF_MESSAGES[verb].walked if verb in OF_MESSAGES else STATES
            if len(states) > 1:
                help = "only what is in this state; may be repeated"
                of[verb].add_argument("--state", action="append", choices=states, dest="states", help=help)

    def _list(self, queues: list[BaseQueue], options: dict) -> None:
        (found, failures), most = self.page(queues, options), options["limit"]
        none = "No message matches" if self.filter(options) or options["states"] else "There are no messages"
        none += "." if self.has_seen_all else " among the messages that were checked."
        without = () if len(queues) > 1 else ("queue",)
        self.write_report(found[:most], "" if failures else none, without=without, full_ids=options["full_ids"])
        if len(found) > most:
            self.say("… and more: see --limit, or queue_stats for how many there are")
        if failures:
            raise CommandError("\n".join(failures))

    def _show(self, queues: list[BaseQueue], options: dict) -> None:
        one, call = self.shown(queues, options)
        if options["json"]:
            self.stdout.write(json.dumps(as_json(one) | {"errors": one.end.errors} | as_json(call)))
        else:
            self.stdout.write(shown.page(one, shown.said(call), self.paint))
