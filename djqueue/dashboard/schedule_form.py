"""The form for a schedule made at run time: its fields, their values for an existing schedule, and their errors."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, cast
from zoneinfo import ZoneInfo

from django import forms
from django.utils import timezone

from djqueue import timetables
from djqueue.discovery import autodiscover
from djqueue.enqueueing.command import Call, Command, with_policy
from djqueue.exceptions import EncodeError, MessageTooLarge, QueueError
from djqueue.messages.failures import text_of
from djqueue.operations.schedules import add, refuse_declared
from djqueue.registry import registry
from djqueue.running.describing import arguments_of
from djqueue.schedules import LONGEST_NAME, Schedule, named
from djqueue.timetables import Calendar, Crontab, Interval, Recurrence, Rule
from djqueue.utils import near
from djqueue.words import parse_span

KINDS = {"every": "Every", "crontab": "Crontab", "rrule": "Rule of iCalendar"}
MISSED = {"latest": "run the latest", "skip": "skip them", "all": "run all of them"}
AT = ("kind", "when", "zone")
"""The fields that say when it ticks."""


class ScheduleForm(forms.Form):
    """A schedule by its name, its call and its timetable; ``known`` is the schedule to change."""

    name = forms.CharField(max_length=LONGEST_NAME)
    command = forms.CharField(
        help_text="A command of this project, as in shop.commands.send_receipt.",
        widget=forms.TextInput(attrs={"list": "djq-commands", "autocomplete": "off"}),
    )
    arguments = forms.CharField(
        required=False,
        help_text="JSON: a list of the positional ones, or an object of those given by name.",
        widget=forms.Textarea(attrs={"rows": 3}),
    )
    kind = forms.ChoiceField(label="Timetable", choices=list(KINDS.items()))
    when = forms.CharField(
        label="When", help_text="As in 90, 30m, 12h or 7d; or 30 2 * * *; or FREQ=WEEKLY;BYDAY=MO;BYHOUR=6;BYMINUTE=0."
    )
    zone = forms.CharField(
        label="Time zone",
        required=False,
        help_text="As in Europe/Berlin, for a crontab or a rule. Django's if it is empty.",
    )
    missed = forms.ChoiceField(
        label="Missed ticks", choices=list(MISSED.items()), help_text="Those at which no consumer ran."
    )
    max_lateness = forms.CharField(
        label="Longest lateness", help_text="Missed ticks that are older are not run. As in 3600, 30m, 12h or 7d."
    )

    def __init__(self, data: Any, known: Schedule | None, shows_arguments: bool):
        self.known = known
        self.call_now = ""
        """The existing call, as code, if it may be seen."""
        initial = {"kind": "every", "missed": "latest", "max_lateness": "1h"}
        if known is not None:
            initial = {"name": known.name, "command": known.command, **_written(known)}
            if shows_arguments:
                self.call_now, initial["arguments"] = _call_of(known)
        super().__init__(data, initial=initial, auto_id="djq_%s")
        self.fields["name"].disabled = known is not None
        if known is not None:
            self.fields["arguments"].help_text += " If it is empty, they stay as they are."

    @property
    def options(self) -> dict[str, Any]:
        """The options that the schedule has besides the options of its command."""
        return {} if self.known is None else {**self.known.plan.plain, **self.known.plan.carried}

    def save(self, by: str) -> Schedule | None:
        """Save the schedule; None, and errors at the fields, if that fails."""
        given = self.cleaned_data
        rule = {name: given[name] for name in ("missed", "max_lateness")}
        call: Call = given["call"]
        try:
            return add(given["name"], given["target"], call.args, call.kwargs, by=by, **given["at"], **rule)
        except (EncodeError, MessageTooLarge) as error:
            self.add_error("arguments", str(error))
        except (QueueError, TypeError, ValueError) as error:
            self.add_error(None, str(error))
        return None

    # ---- What is wrong

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        try:
            refuse_declared(name)
        except QueueError as error:
            raise forms.ValidationError(str(error)) from None
        if self.known is None and named(name) is not None:
            raise forms.ValidationError("There is a schedule of this name: change that one, or give another name.")
        return name

    def clean_command(self) -> str:
        """Only commands that this project has declared: searching for another name would import a module."""
        autodiscover()
        name: str = self.cleaned_data["command"]
        if not isinstance(registry.get(name), Command):
            names = [one.name for one in registry]
            raise forms.ValidationError(f"There is no command {name!r}: {near(name, names)}")
        return name

    def clean_arguments(self) -> Call | None:
        text: str = self.cleaned_data["arguments"]
        try:
            given = json.loads(text) if text else None
        except (ValueError, RecursionError) as error:
            raise forms.ValidationError(f'That is no JSON: {error}. Give it as in ["text", 7].') from None
        if given is not None and not isinstance(given, list | dict):
            raise forms.ValidationError(f"Give a list or an object: [{text}] for one argument.")
        return None if given is None else Call.of(given if isinstance(given, dict) else tuple(given))

    def clean_zone(self) -> ZoneInfo | None:
        name: str = self.cleaned_data["zone"]
        try:
            return ZoneInfo(name) if name else None
        except (KeyError, ValueError, OSError):  # unknown, no relative path, a directory
            raise forms.ValidationError("There is no such time zone: give one as in Europe/Berlin.") from None

    def clean_max_lateness(self) -> float:
        return self._seconds("max_lateness")

    def clean(self) -> dict[str, Any]:
        given = self.cleaned_data
        if "max_lateness" in given:
            self._tried("max_lateness", lambda: Rule.of("latest", given["max_lateness"]))
        if {*AT} <= given.keys():
            given["at"] = self._tried("when", self._at)
        if {"command", "arguments"} <= given.keys():
            given["target"] = self._tried("command", self._target)
            given["call"] = self._tried("arguments", self._call) if given["target"] else None
        return given

    def _tried(self, field: str, make: Any) -> Any:
        try:
            return make()
        except (QueueError, TypeError, ValueError, ImportError, forms.ValidationError) as error:
            notes = getattr(error, "__notes__", ())
            self.add_error(field, error.messages if isinstance(error, forms.ValidationError) else [str(error), *notes])
            return None

    # ---- What it means

    def _at(self) -> dict[str, Any]:
        """When it ticks, for ``schedules.add``; an unchanged timetable keeps its start, and so its ticks."""
        if self.known is not None and not {*AT} & {*self.changed_data}:
            return _as_it_was(self.known)
        given = self.cleaned_data
        kind, text, zone = given["kind"], given["when"], given["zone"]
        if kind == "every":
            if zone:
                raise forms.ValidationError("An interval has no time zone: leave that empty.")
            return {"every": timetables.interval(self._seconds("when")).every}
        if kind == "crontab":
            return {"crontab": Crontab.parse(text, zone)}
        start = datetime.now(zone or timezone.get_default_timezone())
        timetables.timetable({"rrule": text}, start)
        return {"rrule": text, "start": start}

    def _seconds(self, field: str) -> float:
        text: str = self.cleaned_data[field]
        try:
            return float(text) if text.replace(".", "", 1).isdecimal() else parse_span(text)
        except ValueError:
            raise forms.ValidationError(f"{text!r} is no time: give seconds, or as in 90s, 30m, 12h, 7d.") from None

    def _target(self) -> Command[..., Any]:
        """The command, with the options of the known schedule if that has the same command."""
        command = cast("Command[..., Any]", registry[self.cleaned_data["command"]])
        if self.known is None or self.known.command != command.name:
            return command
        return with_policy(command, self.known.policy(command))

    def _call(self) -> Call:
        given, target = self.cleaned_data, self.cleaned_data["target"]
        call: Call | None = given["arguments"]
        if call is None:
            is_same = self.known is not None and self.known.command == target.name
            call = Call(*target.as_made(cast("Schedule", self.known).call)) if is_same else Call()
        target.prepared([call], target.policy)
        return call


def _written(known: Schedule) -> dict[str, str]:
    """Its timetable and its rule as the fields show them."""
    when, rule = known.timetable, known.plan.rule
    said = {"missed": rule.missed, "max_lateness": _number(rule.max_lateness.total_seconds())}
    if isinstance(when, Interval):
        return said | {"kind": "every", "when": _number(when.every)}
    if isinstance(when, Recurrence):
        return said | {"kind": "rrule", "when": when.rrule, "zone": when.zone}
    return said | {"kind": "crontab", "when": when.crontab.line, "zone": str(when.crontab.time_zone or "")}


def _number(seconds: float) -> str:
    return f"{seconds:.6f}".rstrip("0").rstrip(".")


def _as_it_was(known: Schedule) -> dict[str, Any]:
    when = known.timetable
    if isinstance(when, Recurrence):
        return {"rrule": when.rrule, "start": when.start.astimezone(ZoneInfo(when.zone))}
    same = {"crontab": when.crontab} if isinstance(when, Calendar) else {"every": when.every}
    return {**same, "start": when.start}


def _call_of(known: Schedule) -> tuple[str, str]:
    """The call of a schedule as code, and its arguments as JSON; "" if they are not plain or may not be seen."""
    try:
        command = registry.find(known.command)
        call = known.call
        args, kwargs = command.as_made(call)
    except Exception as error:  # of its module, of a model that it names, of what makes a request of its fields
        return f"cannot be shown: {text_of(error)}", ""
    given: list[Any] | dict[str, Any] = kwargs or list(args)
    is_open = not command.policy.sensitive and not (args and kwargs)
    return arguments_of(command, *call), _as_json(given) if is_open else ""


def _as_json(given: list[Any] | dict[str, Any]) -> str:
    """Arguments as JSON; "" if a value would change on the way."""
    try:
        text = json.dumps(given, ensure_ascii=False)
        return text if json.loads(text) == given else ""
    except (TypeError, ValueError, RecursionError):
        return ""
