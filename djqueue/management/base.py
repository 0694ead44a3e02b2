"""The base of the operators' commands: readable help, and colours where they are wanted."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from argparse import PARSER, SUPPRESS, Action, ArgumentParser
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, DjangoHelpFormatter

from djqueue.exceptions import InvalidQueueError, QueueError
from djqueue.management.tables import report, width_of
from djqueue.operations.errors import InvalidInput
from djqueue.operations.outcomes import ActionResult
from djqueue.operations.reports import as_json
from djqueue.words import printable

PIPE_CLOSED = 128 + signal.SIGPIPE
"""The exit code of a command whose output is not read to its end, as other tools of the system use it."""
DJANGO = "options of every Django command"
_OF_DJANGO = {"version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color", "skip_checks"}


class Examples(str):
    """Lines that stay as they are."""


class HelpFormatter(DjangoHelpFormatter):
    """Help in paragraphs, with examples, and without Django's own options in the line of usage."""

    def add_usage(self, usage: Any, actions: Iterable[Any], groups: Iterable[Any], prefix: str | None = None) -> None:
        own = [action for action in actions if action.dest not in _OF_DJANGO]
        super().add_usage(usage, own, groups, prefix)

    def _format_action(self, action: Action) -> str:
        text = super()._format_action(action)
        return text.partition("\n")[2] if action.nargs == PARSER else text  # the verbs, without a line that says so

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if isinstance(text, Examples):
            return textwrap.indent(textwrap.dedent(text).strip(), indent)
        paragraphs = (" ".join(one.split()) for one in textwrap.dedent(text).strip().split("\n\n"))
        return "\n\n".join(
            textwrap.fill(one, width, initial_indent=indent, subsequent_indent=indent) for one in paragraphs
        )


class OperatorCommand(BaseCommand):
    """A command for operators."""

    examples = ""
    """Lines for the help, each a command line and what it does."""
    verbosity = ""
    """What ``--verbosity`` means here, if that is more than for other commands."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> Any:
        parser = super().create_parser(prog_name, subcommand, formatter_class=HelpFormatter, **kwargs)
        for action in parser._actions:
            if action.dest == "verbosity" and self.verbosity:
                action.help, action.metavar = self.verbosity, "LEVEL"
        add_last(parser, self.examples, own={"verbosity"} if self.verbosity else ())
        explain_dashes(parser)
        return parser

    def execute(self, *args: Any, **options: Any) -> Any:
        if os.environ.get("NO_COLOR") and not options["force_color"]:
            options["no_color"] = True
        self._is_json = bool(options.get("json"))
        self._is_colored = options["force_color"] or self.stdout.isatty()
        try:
            return self._executed(*args, **options)
        except BrokenPipeError:  # of the output, as head has read enough: errors of stores have been reported
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(PIPE_CLOSED)

    def _executed(self, *args: Any, **options: Any) -> Any:
        """Run the command; raises CommandError for the errors of operations."""
        try:
            return super().execute(*args, **options)
        except QueueError as error:
            code = 2 if isinstance(error, InvalidInput | InvalidQueueError) else 1
            raise CommandError(printable(str(error)), returncode=code) from error

    def paint(self, text: str, role: str) -> str:
        """A text in the colour of a role of Django's palette, if the output is a terminal that shows colours."""
        return getattr(self.style, role)(text) if role and self._is_colored else text

    def say(self, text: str) -> None:
        """Show people what was done; with ``--json`` the object of the outcome says it."""
        if not self._is_json:
            self.stdout.write(text)

    def write_report(self, rows: Sequence[Any], none: str = "", **form: Any) -> None:
        """Write the rows of a report, as JSON if that is asked for, or the text ``none`` if there are none."""
        if self._is_json:
            self.stdout.write(json.dumps([as_json(one) for one in rows]))
        elif rows:
            self.stdout.write(report(rows, width=width_of(self.stdout), paint=self.paint, **form))
        elif none:
            self.stdout.write(none)

    @contextmanager
    def outcome(self, action: str, what: Iterable[str]) -> Iterator[ActionResult]:
        """A block that does an action. With ``--json`` its outcome is written at the end, also if it fails, but not for
        wrong usage."""
        one, is_usage = ActionResult(action, what), False
        try:
            yield one
        except (CommandError, QueueError) as error:
            is_usage = isinstance(error, InvalidInput)
            one.fail(str(error))
            raise
        finally:
            if self._is_json and not is_usage:
                self.stdout.write(json.dumps(one.as_object()))

    def confirmed(self, question: str, interactive: bool) -> bool:
        """Whether an operator agrees to what is about to be done, if the command asks.

        Raises CommandError if no user can answer.
        """
        if not interactive:
            return True
        question = f"{question} Type 'yes' to continue, or 'no' to stop here: "
        if self._is_json:  # which stays alone on the standard output
            self.stderr.write(question, lambda text: text, ending="")
            self.stderr.flush()
        try:
            answer = input("" if self._is_json else question)
        except EOFError:
            raise CommandError("No one can answer here: give --no-input.", returncode=2) from None
        if answer.strip() != "yes":
            self.say("Nothing is changed.")
        return answer.strip() == "yes"

    def progress(self, total: int) -> Callable[[int], None]:
        """Shows the progress of work in several steps on a terminal, and nothing elsewhere."""

        def show(done: int) -> None:
            if self.stdout.isatty() and done < total and not self._is_json:
                self.stdout.write(f"\r{done:,} of {total:,} …\033[K\r", ending="")
                self.stdout.flush()

        return show


class VerbCommand(OperatorCommand):
    """A command for operators whose first argument says what to do."""

    verbs: Mapping[str, str]
    """What each verb does, as the help says it."""
    more: Mapping[str, str] = {}
    """What the help of a verb says besides that."""

    def add_verbs(self, parser: ArgumentParser) -> dict[str, ArgumentParser]:
        """The parser of each verb, which also has the common switches of Django's commands."""
        group: Any = parser.add_subparsers(
            dest="verb", required=True, metavar=f"{{{','.join(self.verbs)}}}", title="verbs"
        )
        return {verb: self._verb(group, verb, text) for verb, text in self.verbs.items()}

    def _verb(self, group: Any, verb: str, text: str) -> ArgumentParser:
        description = f"{text[0].upper()}{text[1:]}. {self.more.get(verb, '')}"
        given: Any = {"help": text, "description": description, "formatter_class": HelpFormatter}
        parser: ArgumentParser = group.add_parser(verb, parents=[_usual()], **given)
        explain_dashes(parser)
        return parser


def _usual() -> ArgumentParser:
    """The common switches of Django's commands, which may also come after the verb."""
    parser = OperatorCommand().create_parser("", "", add_help=False)
    for action in parser._actions:
        action.default = SUPPRESS  # a value given before the verb stays
    return parser


def explain_dashes(parser: ArgumentParser) -> None:
    """Have the error of an option that lacks its value say that ``--since -5m`` lacks it too."""
    usual = parser.error

    def error(message: str) -> NoReturn:
        hint = " that does not begin with -: 5m, not -5m" if message.endswith("expected one argument") else ""
        usual(message + hint)

    parser.error = error  # type: ignore[method-assign]


def add_last(parser: ArgumentParser, examples: str = "", own: Collection[str] = ()) -> None:
    """Show examples after the options of a command, and then most of Django's own options."""
    if examples:
        parser.add_argument_group("examples", Examples(examples))
    group, options = parser.add_argument_group(DJANGO), parser._optionals._group_actions
    group._group_actions += [action for action in options if action.dest in _OF_DJANGO.difference(own)]
    options[:] = [action for action in options if action not in group._group_actions]
