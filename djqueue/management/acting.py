"""What the commands share that act on something by name: switches from the list of actions, a question, an outcome."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from djqueue.management.base import OperatorCommand
from djqueue.operations.acting import TERMINAL, NamedAction, named
from djqueue.operations.outcomes import REFUSED
from djqueue.operations.queues import asking_stores
from djqueue.operations.targets import Target
from djqueue.words import printable


class ActionCommand(OperatorCommand):
    """A command that acts on something by name."""

    def act(self, verb: str, wanted: Sequence[tuple[NamedAction, Target]], interactive: bool = True) -> None:
        """Do the actions of one verb, if an operator agrees where a terminal asks, and say what was done."""
        names = [action.calls.format(target.name) for action, target in wanted]
        with self.outcome(verb, names) as outcome:
            with asking_stores():
                found = [(action, action.find(target)) for action, target in wanted]
                questions = [*filter(None, (action.asked(one, TERMINAL) for action, one in found))]
            outcome.what = [action.calls.format(target.name) for action, target in found]
            if questions and not self.confirmed(printable(" ".join(questions)), interactive):
                return outcome.fail(REFUSED)
            for action, target in found:
                with asking_stores():
                    action.act(target, outcome)
                self.say(printable(f"{outcome.said}."))


def add_actions(parser: ArgumentParser, kind: str) -> Any:
    """Add the actions of a kind to a command; returns the group of switches, which exclude each other."""
    group = parser.add_mutually_exclusive_group()
    for one in named(kind):
        if one.switch:
            group.add_argument(f"--{one.switch}", metavar="NAME", help=one.help)
    return group


def action_in(options: Mapping[str, Any], kind: str) -> tuple[NamedAction, str] | None:
    """The given action, and the name of what it acts on; None if none is given."""
    given = ((one, options[one.switch]) for one in named(kind) if one.switch)
    return next(((one, name) for one, name in given if name is not None), None)
