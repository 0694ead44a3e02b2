"""What the commands that show and change messages share: switches, a list, and the verbs that change."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError

from djqueue.backends.base import BaseQueue
from djqueue.management.arguments import add_asking, add_filters, add_json, argument, limit
from djqueue.management.base import VerbCommand
from djqueue.operations import message_changes, paging
from djqueue.operations.acting import TERMINAL, MessageAction
from djqueue.operations.failed import call_of
from djqueue.operations.filters import Filter
from djqueue.operations.finding import AN_ID, find, find_one, unclear
from djqueue.operations.message_changes import MOVED_ON
from djqueue.operations.messages import MessageRow
from djqueue.operations.outcomes import REFUSED, ActionResult
from djqueue.operations.paging import MOST_CHECKED, Page, Position, Selection
from djqueue.operations.queues import chosen, of_each, with_feature
from djqueue.words import counted, number

WHICH = "They are those of the ids given, or those that a filter selects, or with --all all of them."


class MessagesCommand(VerbCommand):
    """A command for the messages of some states; each verb that changes messages is an action."""

    states: Sequence[str]
    """The states of the messages that it shows."""
    noun: str
    """How it calls them."""
    moment: str
    """The moment from which ``--older`` and ``--newer`` count."""
    actions: Mapping[str, MessageAction]
    """What its verbs do that change messages."""
    has_seen_all = True
    """Whether the latest list has checked all messages."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        of = self.add_verbs(parser)
        for verb, one in of.items():
            help = "only of this queue; may be repeated (default: all)"
            one.add_argument("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help=help)
            if verb not in ("show", "rehearse"):
                add_filters(one, self.moment)
        self._add_looking(of["list"], of["show"])
        for verb in self.actions:
            self._add_changing(verb, of[verb])
        self.add_others(of)

    def add_others(self, of: Mapping[str, ArgumentParser]) -> None:
        """Add what only this command has."""

    def _add_looking(self, listing: ArgumentParser, show: ArgumentParser) -> None:
        add = listing.add_argument
        add("--limit", type=limit, default=paging.SIZE, help="show this many at most (default: %(default)s)")
        help = "check this many messages of a queue at most, to find them (default: %(default)s)"
        add("--look-at", type=limit, default=MOST_CHECKED, metavar="NUMBER", help=help)
        help = "go on after those that were checked, as the last call has said"
        add("--after", type=argument(Position.parse), metavar="PLACE", help=help)
        add("--full-ids", action="store_true", help="whole ids, instead of their ends")
        show.add_argument("id", help=AN_ID)
        help = "with the arguments of the call, decoded if the signature is good; sensitive ones are masked"
        show.add_argument("--arguments", action="store_true", help=help)
        for one in (listing, show):
            one.add_argument("--json", action="store_true", help="as JSON, with whole ids")

    def _add_changing(self, verb: str, one: ArgumentParser) -> None:
        one.add_argument("ids", nargs="*", metavar="id", help=AN_ID)
        one.add_argument("--all", action="store_true", help="every message in the queues chosen")
        one.add_argument("--dry-run", action="store_true", help="say how many, and leave them as they are")
        if TERMINAL in self.actions[verb].asks:
            add_asking(one, "a filter or --all changes messages")
        if parameter := self.actions[verb].parameter:
            one.add_argument(f"--{parameter.name}", required=True, metavar=parameter.metavar, help=parameter.help)
        add_json(one)

    def handle(self, *args: Any, **options: Any) -> None:
        named = chosen(options["queues"])
        queues, others = with_feature(named, "inspect", asked_for=bool(options["queues"]))
        if others:
            self.stderr.write(others)
        if options["verb"] in self.actions:
            self._change(queues, options)
        else:
            getattr(self, f"_{options['verb']}")(queues, options)

    def filter(self, options: Mapping[str, Any]) -> Filter:
        """The filter that is given."""
        return Filter(options, self.moment)

    # ---- the verbs that show

    def page(self, queues: Sequence[BaseQueue], options: Mapping[str, Any]) -> tuple[list[MessageRow], list[str]]:
        """One message more than a list shows, and what is wrong with queues that cannot be asked.

        Says how to go on in queues where not all messages were checked.
        """
        if options["after"] is not None and len(queues) > 1:
            raise CommandError("--after goes on in one queue: give that, too, by -q.", returncode=2)
        states = [one for one in self.states if one in (options.get("states") or self.states)]
        size, pages = options["limit"] + 1, dict[str, Page]()

        def read(queue: BaseQueue) -> Sequence[MessageRow]:
            selection = Selection([queue], states, self.filter(options))
            pages[queue.alias] = paging.page(selection, options["after"], size, max(options["look_at"], size))
            return pages[queue.alias].messages

        found, failures = of_each(queues, read)
        unfinished = {alias: page for alias, page in pages.items() if page.next is not None and len(found) < size}
        self.has_seen_all = not unfinished
        for alias, page in unfinished.items():
            seen = f"{number(page.checked)} messages of {alias} were checked"
            self.stderr.write(f"{seen}; the same call goes on with -q {alias} --after {page.next}")
        return found, failures

    def shown(self, queues: Sequence[BaseQueue], options: Mapping[str, Any]) -> tuple[MessageRow, dict[str, str]]:
        """The message of an id and, if wanted, its call or why that cannot be shown."""
        one = find_one(queues, options["id"], self.states)
        if not options["arguments"]:
            return one, {}
        [queue] = [queue for queue in queues if queue.alias == one.queue]
        call, problem = call_of(queue, one.entry)
        return one, {"call": call, "call_error": problem}

    # ---- the verbs that change

    def _change(self, queues: Sequence[BaseQueue], options: Mapping[str, Any]) -> None:
        action, asked = self.actions[options["verb"]], self.filter(options)
        _refuse_none_or_both(options["ids"], asked or options["all"] or options.get("states"))
        given = action.given(options[action.parameter.name]) if action.parameter else {}
        with self.outcome(action.name, dict.fromkeys(options["ids"])) as outcome:
            outcome.dry_run = options["dry_run"]
            if options["ids"]:
                self._change_known(action, queues, given, outcome)
            else:
                states = [one for one in action.walked if one in (options.get("states") or action.usual)]
                selection = Selection(queues, states, asked)
                self._change_selected(action, selection, given, outcome, options.get("interactive", False))

    def _change_known(
        self, action: MessageAction, queues: Sequence[BaseQueue], given: Mapping[str, Any], outcome: ActionResult
    ) -> None:
        found = find(queues, outcome.what, tuple(dict.fromkeys((*self.states, *action.states))))
        messages, left = found.messages, [*found.unclear]
        outcome.what = [*(one.id for one in messages), *left]
        message_changes.refuse_misfits(action, messages, outcome)
        try:
            missing = message_changes.change_known(action, queues, messages, given, outcome)
        finally:  # even if the store of the next queue is unreachable
            if outcome.count:
                self.say(f"{outcome.said}.")
        if left:
            error = unclear(queues, found, self.states)
            for id in left:
                outcome.refuse(id, "it is a part of several ids" if found.matches[id] else f"it is no {self.noun}")
            raise error
        if missing:
            outcome.refuse(counted(missing, "message"), MOVED_ON)
            raise CommandError(f"{missing} could not be {action.done}: {MOVED_ON}.")

    def _change_selected(
        self,
        action: MessageAction,
        wanted: Selection,
        given: Mapping[str, Any],
        outcome: ActionResult,
        interactive: bool,
    ) -> None:
        outcome.what = [str(wanted.asked) or f"all that is {' or '.join(wanted.states)}"]
        ids = message_changes.ids_of(wanted, given)
        counts = {queue: len(own) for queue, own in ids.items()}
        total = sum(counts.values())
        where = ", ".join(f"{number(count)} in {queue.alias}" for queue, count in counts.items() if count)
        if outcome.dry_run or not total:
            for queue, count in counts.items():
                outcome.did(count, queue.alias)
            action.note(outcome)
            none = f"no {self.noun} matches {wanted.asked}" if wanted.asked else ""
            return self.say(": ".join(filter(None, [outcome.said, where or none])) + ".")
        if not self.confirmed(f"{action.asked(total)} {where}.", interactive):
            return outcome.fail(REFUSED)
        try:
            message_changes.change_selected(action, ids, given, outcome, self.progress(total))
        finally:
            if outcome.count:
                self.say(f"{outcome.said}.")
        return None


def _refuse_none_or_both(ids: Collection[str], others: object) -> None:
    """Raises CommandError unless messages are given either by ids, or by a filter or --all."""
    if not (ids or others):
        raise CommandError("Give the ids of messages, or a filter such as --command, or --all.", returncode=2)
    if ids and others:
        raise CommandError("Give the ids of messages, or else a filter or --all: not both.", returncode=2)
