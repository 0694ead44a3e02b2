"""What README.rst and docs/ state about the code is what the code says."""

import ast
import csv
import logging.config
import re
import sys
import textwrap
import unittest
from pathlib import Path
from types import SimpleNamespace

import django
import docutils.core
import pytest
from django.core import mail
from django.core.management import BaseCommand, load_command_class
from django.dispatch import Signal
from django.utils.module_loading import import_string
from docutils import nodes

from djqueue import conf, exceptions, signals
from djqueue.backends.base import FEATURES
from djqueue.checks import CATALOGUE
from djqueue.consumer import Consumer
from djqueue.decorators import crontab, queue_command
from djqueue.operations.by_command import CommandRow
from djqueue.operations.consumers import ConsumerRow
from djqueue.operations.counts import QueueRow
from djqueue.operations.explaining import Explanation, Reason
from djqueue.operations.failed import FailedMessage, Group
from djqueue.operations.health import Problem
from djqueue.operations.history import EndedMessage
from djqueue.operations.lanes import LaneRow
from djqueue.operations.messages import MessageRow
from djqueue.operations.pausing import PauseRow
from djqueue.operations.reports import columns
from djqueue.operations.schedules import ScheduleRow
from djqueue.policies import options
from djqueue.testing import QueueContract, capture_enqueued
from tests.backends.contract.toy import ToyQueue
from tests.support.document_runner import Runner, own_logging, read_settings
from tests.support.documents import ROOT, Block, blocks, documents

REFERENCE = ROOT / "docs" / "reference"
BEHAVIOUR = ROOT / "docs" / "behaviour.rst"
COMPARISON = ROOT / "docs" / "comparison.rst"
QUIET = {"report_level": 5, "halt_level": 5, "doctitle_xform": False}
CHECKS = {"DJ": 25, "TO": 22, "DF": 27, "TQ": 23, "SQ": 26}
CHECK_IDS = {f"{kind}-{number}" for kind, most in CHECKS.items() for number in range(1, most + 1)}


@queue_command
def explode(secret):
    raise RuntimeError("boom")


def table(path: Path, title: str, part: type[nodes.Part] = nodes.tbody) -> list[list[nodes.entry]]:
    """The cells of the first table below a title, row by row, without its head, or of another part of it."""
    tree = docutils.core.publish_doctree(path.read_text(), settings_overrides=QUIET)
    sections = [section for section in tree.findall(nodes.section) if section.next_node(nodes.title).astext() == title]
    assert sections, f"{path.name} has no section {title!r}"
    found = next(sections[0].findall(part))
    return [list(row.findall(nodes.entry)) for row in found.findall(nodes.row)]


def literals(entry: nodes.entry) -> list[str]:
    return [literal.astext() for literal in entry.findall(nodes.literal)]


def names(path: Path, title: str) -> list[str]:
    """The names in the first column."""
    return [name for row in table(path, title) for name in literals(row[0])]


REPORTS = (
    *(MessageRow, FailedMessage, Group, EndedMessage, LaneRow, ScheduleRow, PauseRow, ConsumerRow, QueueRow),
    *(CommandRow, Problem, Explanation, Reason),
)


def switches() -> set[str]:
    own = load_command_class("djqueue", "queue_consumer").create_parser("django-admin", "queue_consumer")
    usual = BaseCommand().create_parser("django-admin", "queue_consumer")
    new = set(own._option_string_actions) - set(usual._option_string_actions)
    return new | {"-v", "--verbosity"}


def sample(path: Path, text: str) -> Block:
    """The one sample that contains a text."""
    (found,) = [block for block in blocks(path) if text in block.text]
    return found


def test_every_switch_of_the_consumer_is_listed():
    listed = names(REFERENCE / "commands.rst", "queue_consumer")
    assert len(listed) == len(set(listed))
    assert set(listed) == switches()


def test_every_switch_of_queue_errors_is_listed_with_its_verbs():
    parser = load_command_class("djqueue", "queue_errors").create_parser("django-admin", "queue_errors")
    [verbs] = [action.choices for action in parser._actions if action.dest == "verb"]
    usual = set(BaseCommand().create_parser("django-admin", "queue_errors")._option_string_actions)
    own = {verb: set(one._option_string_actions) - usual for verb, one in verbs.items()}
    told = {"all": set(verbs), "all but show and rehearse": set(verbs) - {"show", "rehearse"}}
    for row in table(REFERENCE / "commands.rst", "queue_errors"):
        for switch in literals(row[0]):
            listed = told.get(row[1].astext(), set(literals(row[1])))
            assert listed == {verb for verb, switches in own.items() if switch in switches}, switch
    assert set(names(REFERENCE / "commands.rst", "queue_errors")) == set().union(*own.values())


def test_every_field_of_a_report_is_listed():
    rows = [literals(fields) for _, fields in table(REFERENCE / "reports.rst", "Reports as JSON")]
    assert rows == [[one.name for one in columns(report) if one.in_json] for report in REPORTS]


def test_every_option_of_a_command_is_listed():
    assert sorted(names(REFERENCE / "decorators.rst", "Options")) == sorted(options.OPTIONS)


DEFAULTS = {name: setting.default for name, setting in conf.SETTINGS.items()}


def test_every_setting_is_listed_with_its_default():
    rows = [[literals(cell)[0] for cell in row[:2]] for row in table(REFERENCE / "settings.rst", "Settings")]
    assert {name: eval(default) for name, default in rows} == DEFAULTS


def test_every_key_and_option_of_queues_is_listed():
    assert sorted(names(REFERENCE / "settings.rst", "Keys of QUEUES")) == sorted(conf.QUEUE_KEYS)
    options = {literals(row[0])[0]: row[1].astext() for row in table(REFERENCE / "settings.rst", "Options of a queue")}
    known = set(conf.COMMON_OPTIONS).union(*(cls.options for cls in backends().values()))
    assert set(options) == known


def backends() -> dict[str, type]:
    base = "djqueue.backends"
    paths = {
        "Database": f"{base}.database.DatabaseQueue",
        "Redis": f"{base}.redis_backend.RedisBlockingQueue",
        "SQS": f"{base}.sqs.SqsQueue",
        "Memory": f"{base}.memory.MemoryQueue",
        "Four methods": f"{base}.base.BaseQueue",
    }
    return {title: import_string(path) for title, path in paths.items()}


def test_what_a_backend_cannot_do_is_what_it_declares():
    rows = table(REFERENCE / "backends.rst", "What they can do")
    features = [literals(row[0])[0] for row in rows]
    assert set(features) == FEATURES - {"facts"}, "that one a queue lacks only by its settings"
    for column, (title, cls) in enumerate(backends().items(), start=2):
        lacks = {name for name, row in zip(features, rows, strict=True) if row[column].astext() == "no"}
        assert lacks == FEATURES - cls.features, title


def test_every_signal_is_listed_with_what_it_carries():
    rows = {literals(row[0])[0]: set(literals(row[2])) for row in table(REFERENCE / "signals.rst", "Signals")}
    assert set(rows) == {name for name, value in vars(signals).items() if isinstance(value, Signal)}
    emitters = "policies/outcomes running/settle enqueueing/producer running/executor consumer/maintenance"
    source = "".join((ROOT / "djqueue" / f"{name}.py").read_text() for name in emitters.split())
    for name in {word for words in rows.values() for word in words}:
        assert re.search(rf"\b{name}\b", source), name


def test_every_system_check_is_listed():
    source = "".join(path.read_text() for path in (ROOT / "djqueue").rglob("*.py"))
    ids = {f"djqueue.{id}" for id in CATALOGUE} | set(re.findall(r"djqueue\.[EWI]\d+", source))
    assert sorted(names(REFERENCE / "checks.rst", "System checks")) == sorted(ids)


def test_every_exception_is_listed():
    classes = [value for value in vars(exceptions).values() if isinstance(value, type)]
    own = {value.__name__ for value in classes if value.__module__ == exceptions.__name__}
    assert set(names(REFERENCE / "exceptions.rst", "Exceptions")) == own


def test_every_management_command_is_described():
    folder = ROOT / "djqueue" / "management" / "commands"
    commands = {path.stem for path in folder.glob("queue_*.py")}
    text = (REFERENCE / "commands.rst").read_text()
    assert {name for name in commands if f"\n{name}\n---" not in text} == set()


def installed_packages() -> dict[str, dict[str, str]]:
    """The versions of other packages by the command that installs them: the pins of the race, what the suite ran on."""
    pins = (ROOT / "tests" / "benchmarks" / "race" / "requirements.txt").read_text().splitlines()
    with (ROOT / "docs" / "conformance.csv").open(newline="") as file:
        suite = {row["Backend"]: row["Version"] for row in csv.DictReader(file)}
    return {"make race": dict(pin.split("==") for pin in pins if "==" in pin), "make conformance": suite}


def test_the_versions_of_compared_packages_are_those_that_are_installed():
    installed = installed_packages()
    versions = table(COMPARISON, "Versions")
    [[_, _, *compared]] = table(COMPARISON, "Feature by feature", nodes.thead)
    assert {cell.astext() for cell in compared} <= {row[0].astext() for row in versions}
    for name, version, commands in versions:
        package = name.astext().lower()
        found = {command: packages[package] for command, packages in installed.items() if package in packages}
        assert dict.fromkeys(literals(commands), version.astext()) == found, package


def test_behaviour_names_every_check_once_and_tests_carry_them():
    stated = re.findall(r"\((?:[^()]*)\)$", BEHAVIOUR.read_text(), re.M)
    ids = re.findall(r"\b(?:DJ|TO|DF|TQ|SQ)-\d+\b", " ".join(stated))
    assert CHECK_IDS <= set(ids)
    sources = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "djqueue" / "testing").rglob("*.py")]
    tests = "".join(path.read_text() for path in sources if path.name != Path(__file__).name).lower()
    carried = {id for id in CHECK_IDS if re.search(rf"{id[:2].lower()}[-_]?{id[3:]}(?!\d)", tests)}
    assert carried == CHECK_IDS, f"no test carries {sorted(CHECK_IDS - carried)}"


def test_the_documents_speak_of_this_project_only():
    for path in documents():
        assert not re.search(r"/work/|\bissue\b.*#\d|seeds?\.md|design\.md|\bTODO\b|\bFIXME\b", path.read_text()), path


def test_the_four_methods_of_the_page_keep_the_contract(tmp_path):
    page = ROOT / "docs" / "howto" / "writing-a-backend.rst"
    with Runner(tmp_path, "spool") as runner:
        queue_class = runner.write(sample(page, "class SpoolQueue")).SpoolQueue

        class Suite(QueueContract):
            def make_queue(self, name, **options):
                return queue_class(name, str(tmp_path / "spool"), **options)

        suite = Suite()
        for name in [name for name in dir(suite) if name.startswith("test_")]:
            try:
                getattr(suite, name)()
            except Exception as error:
                if type(error).__name__ != "SkipTest":
                    error.add_note(name)
                    raise
        assert "shop.spool" in sys.modules


def docstring_samples() -> dict[str, str]:
    """The literal blocks in the docstrings of djqueue, by module and name."""
    found = {}
    for path in (ROOT / "djqueue").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and "::\n" in (
                ast.get_docstring(node) or ""
            ):
                name = f"{path.relative_to(ROOT / 'djqueue')}:{getattr(node, 'name', '')}"
                block = ast.get_docstring(node).split("::\n", 1)[1]
                found[name] = textwrap.dedent(re.match(r"(?:\s*\n| .*(?:\n|$))+", block)[0])
    return found


def run_contract_sample(code: str) -> None:
    shelves: dict = {}
    scope = {"QueueContract": QueueContract, "unittest": unittest, "MyQueue": lambda name, at: ToyQueue(name, shelves)}
    exec(code, scope)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(scope["TestMyQueue"]).run(result)
    assert result.testsRun > 5 and result.wasSuccessful(), result.errors + result.failures


def run_capture_sample(code: str) -> None:
    told = {"id": "1", "queue_name": "default"}
    client = SimpleNamespace(post=lambda *args: signals.emit(signals.enqueued, COMMAND, **told))
    exec(code, {"capture_enqueued": capture_enqueued, "self": SimpleNamespace(client=client), "photo": 0})


COMMAND = "gallery.commands.make_thumbnails"
DOCSTRINGS = {
    "timetables.py:": lambda grammar: crontab(minute="*/5", hour="8-18/2"),
    "testing/contract/queue.py:": run_contract_sample,
    "testing/capture.py:capture_enqueued": run_capture_sample,
}


@pytest.mark.django_db
def test_every_sample_in_a_docstring_runs():
    samples = docstring_samples()
    assert samples.keys() == DOCSTRINGS.keys()
    for name, code in samples.items():
        DOCSTRINGS[name](code)


def test_the_logging_sample_sends_one_mail_per_failure(tmp_path, settings):
    """DJ-17: with the traceback, and without the arguments."""
    settings.QUEUES = {"default": {"CLASS": "djqueue.backends.memory.MemoryQueue"}}
    settings.ADMINS = ["ops@example.com"] if django.VERSION >= (6, 0) else [("Ops", "ops@example.com")]
    given = read_settings(sample(ROOT / "docs" / "howto" / "logging.rst", "mail_admins"), tmp_path)
    with own_logging():
        logging.config.dictConfig(given["LOGGING"])
        explode.enqueue_many([("hush",)] * 3)
        assert Consumer(threads=2, periodic=False).run(limit=3) == 0
    assert len(mail.outbox) == 3
    for letter in mail.outbox:
        assert "explode" in letter.subject
        assert "RuntimeError: boom" in letter.body
        assert "hush" not in letter.body
    assert len({letter.subject for letter in mail.outbox}) == 3  # the ids
