"""``django-admin queue_messages``: which messages wait, run or have failed, and what is to become of them."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from django.core.management.base import CommandError

from djqueue.backends.base import BaseQueue
from djqueue.backends.entries import DELAYED, FAILED
from djqueue.exceptions import InvalidMessage, NotSupported, UnknownCommand
from djqueue.management import messages as shown
from djqueue.management.arguments import add_asking, add_filters, add_json, limit
from djqueue.management.base import VerbCommand, refuse_none_or_both
from djqueue.management.outcomes import REFUSED, Outcome
from djqueue.management.selecting import by_id, by_ids
from djqueue.management.tables import table, width_of
from djqueue.operations import failed, messages, paging
from djqueue.operations.messages import RUNNING, STATES, WAITING, Filter, Message
from djqueue.operations.paging import Position, Selection
from djqueue.operations.queues import asking, chosen, of_each, with_feature
from djqueue.utils import priority
from djqueue.wiring import queues as all_queues
from djqueue.words import counted, cut, cut_start, number

VERBS = {
    "list": "the messages, a line for each",
    "show": "one message with what went wrong at its attempts",
    "cancel": "cancel what waits, and ask what runs to stop; results and the history say so",
    "remove": "delete messages without a trace",
    "run-now": "let delayed messages be due now",
    "reprioritise": "give messages that wait another priority",
    "requeue": "put failed messages back into their queues, with their counts of attempts at zero",
    "move": "move messages that wait to another queue, where they are new",
}
LOOK_AT = 20_000
"""Messages of a queue that are looked at for a list, which takes less than half a second."""
WHICH = "They are those of the ids given, or those that a filter selects, or with --all all of them."


class Action(NamedTuple):
    """A verb that changes messages."""

    done: str
    states: tuple[str, ...]
    """The states of the messages that it is for."""
    change: Callable[..., int]


ACTIONS = {
    "cancel": Action("cancelled or asked to stop", (*WAITING, RUNNING), messages.cancel),
    "remove": Action("removed", (*WAITING, FAILED), messages.remove),
    "run-now": Action("due now", (DELAYED,), messages.run_now),
    "reprioritise": Action("reprioritised", WAITING, messages.reprioritise),
    "requeue": Action("requeued", (FAILED,), messages.requeue),
    "move": Action("moved", WAITING, messages.move),
}


class Command(VerbCommand):
    verbs, more = VERBS, dict.fromkeys(ACTIONS, WHICH)
    help = (
        "Looks at the messages that are ready, delayed, running or failed, and changes them. Arguments are not "
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

    def add_arguments(self, parser: ArgumentParser) -> None:
        of = self.add_verbs(parser)
        for verb, one in of.items():
            help = "only of this queue; may be repeated (default: all)"
            one.add_argument("-q", "--queue", action="append", dest="queues", metavar="ALIAS", help=help)
            states = ACTIONS[verb].states if verb in ACTIONS else STATES
            if verb != "show":
                add_filters(one, Filter.arguments)
            if verb != "show" and len(states) > 1:
                help = "only what is in this state; may be repeated"
                one.add_argument("--state", action="append", choices=states, dest="states", help=help)
        self._add_looking(of)
        for verb in ACTIONS:
            self._add_changing(of[verb])
        of["reprioritise"].add_argument("--priority", type=int, required=True, metavar="NUMBER", help="higher is first")
        of["move"].add_argument("--to", required=True, metavar="ALIAS", help="the queue to move them to")

    def _add_looking(self, of: dict[str, ArgumentParser]) -> None:
        of["list"].add_argument("--limit", type=limit, default=50, help="show this many at most (default: %(default)s)")
        help = "look at this many messages of a queue at most, to find them (default: %(default)s)"
        of["list"].add_argument("--look-at", type=limit, default=LOOK_AT, metavar="NUMBER", help=help)
        help = "go on behind those that were looked at, as the last call has said"
        of["list"].add_argument("--after", type=_position, metavar="PLACE", help=help)
        of["list"].add_argument("--full-ids", action="store_true", help="whole ids, instead of their ends")
        of["show"].add_argument("id", help=failed.AN_ID)
        help = "with the arguments of the call, decoded if the signature is good; sensitive ones are masked"
        of["show"].add_argument("--arguments", action="store_true", help=help)
        for verb in ("list", "show"):
            of[verb].add_argument("--json", action="store_true", help="as JSON, with whole ids")

    def _add_changing(self, one: ArgumentParser) -> None:
        one.add_argument("ids", nargs="*", metavar="id", help=failed.AN_ID)
        one.add_argument("--all", action="store_true", help="every message in the queues chosen")
        one.add_argument("--dry-run", action="store_true", help="say how many, and leave them as they are")
        add_asking(one, "a filter or --all changes messages")
        add_json(one)

    def handle(self, *args: Any, **options: Any) -> None:
        refusal = "The messages of {} cannot be looked at: its backend cannot 'inspect'."
        queues, others = with_feature(chosen(options["queues"]), "inspect", refusal, asked_for=bool(options["queues"]))
        if others:
            self.stderr.write(f"Left out, as their backends cannot 'inspect': {others}.")
        if options["verb"] in ACTIONS:
            self._change(queues, options["verb"], options)
        else:
            getattr(self, f"_{options['verb']}")(queues, options)

    # ---- the verbs that look

    def _list(self, queues: list[BaseQueue], options: dict) -> None:
        most, asked = options["limit"], Filter(options)
        states = [one for one in STATES if one in (options["states"] or STATES)]
        if options["after"] is not None and len(queues) > 1:
            raise CommandError("--after goes on in one queue: give that, too, by -q.", returncode=2)
        pages = Pages(states, asked, most, max(options["look_at"], most + 1), options["after"])
        found, failures = of_each(queues, pages.of)
        if options["json"]:
            self.stdout.write(json.dumps([messages.as_object(one) for one in found[:most]]))
        elif found:
            self._table(found[:most], options["full_ids"], several=len(queues) > 1)
            if len(found) > most:
                self.stdout.write("… and more: see --limit, or queue_stats for how many there are")
        elif not failures:
            selected = asked or options["states"]
            self.stdout.write("No message matches." if selected else "There are no messages.")
        if len(found) <= most:
            for line in pages.unfinished:
                self.stderr.write(line)
        if failures:
            raise CommandError("\n".join(failures))

    def _table(self, found: Sequence[Message], full_ids: bool, several: bool) -> None:
        now = {}
        for queue in {one.queue: all_queues[one.queue] for one in found}.values():
            with asking(queue):
                now[queue.alias] = queue.now()
        without = [*shown.empty_columns(found), *(() if several else ("queue",))]
        cuts = {"about": cut, "lane": cut_start, "command": cut_start}
        form: Any = {"cuts": cuts, "width": width_of(self.stdout)}
        rows = shown.rows(found, now, full_ids)
        right = ("age", "attempts", "priority")
        self.stdout.write(table(shown.HEAD, rows, right, without=without, paint=self.paint, **form))

    def _show(self, queues: list[BaseQueue], options: dict) -> None:
        queue, one = by_id(queues, options["id"])
        call, problem = failed.call_of(queue, one.record) if options["arguments"] else ("", "")
        if options["json"]:
            more = {"call": call or None, "call_error": problem or None} if options["arguments"] else {}
            self.stdout.write(json.dumps(messages.full_object(one) | more))
        else:
            said = {"call": call or f"cannot be shown: {problem}"} if options["arguments"] else {}
            self.stdout.write(shown.page(one, said, self.paint))

    # ---- the verbs that change

    def _change(self, queues: list[BaseQueue], verb: str, options: dict) -> None:
        asked = Filter(options)
        refuse_none_or_both(options["ids"], asked or options["all"] or options.get("states"))
        how = self._how(verb, options)
        with self.outcome(verb, dict.fromkeys(options["ids"])) as outcome:
            outcome.dry_run = options["dry_run"]
            if options["ids"]:
                self._change_known(queues, verb, how, outcome)
            else:
                self._change_selected(queues, verb, options, asked, how, outcome)

    def _how(self, verb: str, options: dict) -> dict[str, Any]:
        """What the verb is given beside the messages. Raises CommandError for what cannot be."""
        try:
            if verb == "reprioritise":
                return {"priority": priority(options["priority"])}
            if verb == "move":
                [there] = chosen([options["to"]])
                return {"to": there.alias}
        except ValueError as error:
            raise CommandError(f"--priority: {error}", returncode=2) from None
        return {}

    def _change_known(self, queues: list[BaseQueue], verb: str, how: dict[str, Any], outcome: Outcome) -> None:
        action, found = ACTIONS[verb], by_ids(queues, outcome.what)
        outcome.what = [one.id for _, one in found]
        _refuse_misfits(verb, [one for _, one in found], outcome)
        for queue in queues:
            ids = [one.id for own, one in found if own is queue]
            if ids and outcome.dry_run:
                outcome.did(len(ids), queue.alias)
            elif ids:
                self._changed(queue, action, ids, how, outcome)
                outcome.did(0, what=ids)
        self.say(f"{number(outcome.count)} {'would be ' if outcome.dry_run else ''}{action.done}")
        if missing := len(found) - outcome.count:
            why = "they have moved on meanwhile"
            outcome.refuse(counted(missing, "message"), why)
            raise CommandError(f"{missing} could not be {action.done}: {why}.")

    def _change_selected(
        self,
        queues: list[BaseQueue],
        verb: str,
        options: dict,
        asked: Filter,
        how: dict[str, Any],
        outcome: Outcome,
    ) -> None:
        action = ACTIONS[verb]
        states = options.get("states") or [one for one in action.states if one != FAILED or verb == "requeue"]
        outcome.what = [str(asked) or f"all that is {' or '.join(states)}"]
        found = partial(_selected, states=states, asked=asked, but=how.get("priority"))
        counts = {queue: sum(1 for _ in found(queue)) for queue in queues}
        total = sum(counts.values())
        where = ", ".join(f"{number(count)} in {queue.alias}" for queue, count in counts.items() if count)
        if outcome.dry_run or not total:
            for queue, count in counts.items():
                outcome.did(count, queue.alias)
            return self.say(f"{number(total)} would be {action.done}{f': {where}' if where else ''}")
        what = f"{number(total)} {'message' if total == 1 else 'messages'} would be {action.done}: {where}."
        if not self.confirmed(what, options["interactive"]):
            return outcome.fail(REFUSED)
        seen, progress = 0, self.progress(total)
        for queue, count in counts.items():
            ids = (one.id for one in islice(found(queue), count))
            told = {"what": outcome.what[0], "progress": lambda done, before=seen: progress(before + done)}
            self._changed(queue, action, ids, how | told, outcome)
            seen += count
        return self.say(f"{number(outcome.count)} {action.done}")

    def _changed(self, queue: BaseQueue, action: Action, ids: Any, how: dict[str, Any], outcome: Outcome) -> None:
        with asking(queue):
            try:
                action.change(queue, ids, done=partial(outcome.did, queue=queue.alias), **how)
            except (InvalidMessage, UnknownCommand, NotSupported, ValueError) as error:
                raise CommandError(f"A message of {queue.alias!r} cannot be {action.done}: {error}") from error


class Pages:
    """A page of each queue, and what is said of queues of which not all messages were looked at."""

    def __init__(self, states: Sequence[str], asked: Filter, size: int, most: int, begin: Position | None):
        self._states, self._asked, self._size, self._most, self._begin = states, asked, size, most, begin
        self.unfinished: list[str] = []

    def of(self, queue: BaseQueue) -> Sequence[Message]:
        page = paging.page(Selection([queue], self._states, self._asked), self._begin, self._size + 1, self._most)
        if page.next is not None:
            seen = f"{number(page.looked_at)} messages of {queue.alias} were looked at"
            self.unfinished.append(f"{seen}; the same call goes on with -q {queue.alias} --after {_written(page.next)}")
        return page.messages


def _written(at: Position) -> str:
    return f"{at.place}.{urlsafe_b64encode(at.cursor.encode('utf-8', 'surrogatepass')).decode()}"


def _position(text: str) -> Position:
    place, _, cursor = text.partition(".")
    try:
        return Position(int(place), urlsafe_b64decode(cursor).decode("utf-8", "surrogatepass"))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no place: give what the last call has said.") from None


def _refuse_misfits(verb: str, found: Sequence[Message], outcome: Outcome) -> None:
    """Raises CommandError if some messages are in a state that the verb is not for."""
    states = ACTIONS[verb].states
    for one in found:
        if one.state not in states:
            outcome.refuse(one.id, f"it is {one.state}")
    if outcome.refused:
        told = "\n".join(f"{one.what} {one.why.removeprefix('it ')}" for one in outcome.refused)
        outcome.fail("others were refused, so nothing is done")
        raise CommandError(f"{verb} is for messages that are {' or '.join(states)}:\n{told}")


def _listed(queues: Sequence[BaseQueue], states: Sequence[str], asked: Filter) -> Iterator[Message]:
    for queue in queues:
        with asking(queue):
            yield from messages.messages_of(queue, states, asked)


def _selected(queue: BaseQueue, states: Sequence[str], asked: Filter, but: int | None) -> Iterator[Message]:
    """The messages of a queue that are selected, without those that have the priority that they are to get."""
    return (one for one in _listed([queue], states, asked) if one.priority != but or but is None)
