"""Runs the Python samples of one document, in order, as the modules and the settings that they say they are."""

import importlib
import logging
import sys
import types
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

from django.conf import settings
from django.core import checks
from django.db import connections
from django.db.utils import ConnectionHandler
from django.dispatch import Signal
from django.test import override_settings

from djqueue import queues, signals
from djqueue.backends.database import checks as database_checks
from djqueue.consumer import Consumer
from djqueue.registry import registry
from djqueue.tasks.compat import PACKAGE
from tests.support.documents import Block

OTHER_BACKENDS = {"django_tasks_db", "django_rq", "django_tasks_rq"}
"""Apps that are installed on Python 3.11 alone: some of them need the package that must not be next to Django 6."""


class Runner:
    """A folder on sys.path for the files of a document, and a module of its own for what stands in none.

    Whatever a sample enqueues is run by a consumer when the sample is over, and must not fail.
    """

    def __init__(self, folder: Path, name: str):
        self.folder = folder
        self.main = types.ModuleType(f"docs_{name}")
        self._known = {command.name for command in registry}
        self._modules = set(sys.modules)
        self._receivers = {
            signal: [*signal.receivers] for signal in vars(signals).values() if isinstance(signal, Signal)
        }

    def __enter__(self):
        sys.path.insert(0, str(self.folder))
        sys.modules[self.main.__name__] = self.main
        return self

    def __exit__(self, *exc):
        sys.path.remove(str(self.folder))
        for name in set(sys.modules) - self._modules:
            if name == self.main.__name__ or self._is_here(sys.modules[name]):
                del sys.modules[name]
        for command in [command for command in registry if command.name not in self._known]:
            registry.unregister(command)
        for signal, receivers in self._receivers.items():
            signal.receivers = receivers
            signal.sender_receivers_cache.clear()

    def run(self, block: Block) -> None:
        if block.file.endswith("settings.py"):
            return self.apply(block)
        if block.file:
            module = self.write(block)
            if "/test" in block.file:
                run_tests(module)
        else:
            exec(compile(as_here(block.code), str(block.path), "exec"), self.main.__dict__)
        drain()

    def write(self, block: Block) -> types.ModuleType:
        """Put the sample into its file, behind what an earlier one put there, and import that."""
        path = self.folder / block.file
        for folder in [parent for parent in path.parents if self.folder in parent.parents]:
            self.package(folder)
        path.write_text((path.read_text() if path.exists() else "") + as_here(block.text) + "\n")
        name = block.file.removesuffix(".py").replace("/", ".")
        importlib.invalidate_caches()
        return importlib.reload(sys.modules[name]) if name in sys.modules else importlib.import_module(name)

    def package(self, name: str | Path) -> None:
        """Make a package in the folder, unless it is there; ``shop`` is an app of every project of the documents."""
        package = self.folder / name
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        importlib.invalidate_caches()

    def apply(self, block: Block) -> dict:
        """Apply a settings sample: every queue can be made, every check passes, every database can be opened."""
        given = {"QUEUES": {}, "TASKS": {}} | read_settings(block, self.folder)
        if missing := [app for app in given["INSTALLED_APPS"] if app in OTHER_BACKENDS and find_spec(app) is None]:
            assert sys.version_info >= (3, 12), f"{block.where} needs {missing}, which are among the extra test"
            return given
        self.package("shop")
        with own_logging(), databases(given.pop("DATABASES", {})), override_settings(**given):
            for alias in queues:
                assert queues[alias].alias == alias
            problems = [message for message in checks.run_checks() if message.level >= checks.WARNING]
            # A sample shows some settings, not all that the commands of its document need, and no app is loaded for it.
            left_out = "djqueue.E011", "djqueue.W006", "djqueue.W007", "djqueue.W404"
            problems = [message for message in problems if message.id not in left_out]
        assert not problems, f"{block.where}: {problems}"
        return given

    def _is_here(self, module: types.ModuleType) -> bool:
        return str(getattr(module, "__file__", "") or "").startswith(str(self.folder))


def as_here(text: str) -> str:
    """A sample says where Django 6 has tasks; on Django 5.2 they are in another package."""
    return text.replace("django.tasks", PACKAGE)


def read_settings(block: Block, folder: Path) -> dict:
    """What a settings sample sets, on top of a project without djqueue."""
    installed = [app for app in settings.INSTALLED_APPS if app != "djqueue"]
    scope = {"INSTALLED_APPS": installed, "BASE_DIR": folder, "DATABASES": {}}
    exec(compile(block.code, str(block.path), "exec"), scope)
    if "djqueue" not in scope["INSTALLED_APPS"]:
        scope["INSTALLED_APPS"] = [*installed, "djqueue"]
    return {name: value for name, value in scope.items() if name.isupper() and name != "BASE_DIR"}


@contextmanager
def own_logging() -> Iterator[None]:
    """Let what is configured within, as by LOGGING of a sample, end with the block."""
    logger = logging.getLogger("djqueue")
    level, handlers, propagate = logger.level, [*logger.handlers], logger.propagate
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@contextmanager
def databases(given: dict) -> Iterator[None]:
    """Let the aliases of a sample exist for a while; a file of SQLite is opened, and has to be fit for a queue."""
    configured = ConnectionHandler({"default": {}, **deepcopy(given)}).settings
    new = {alias: configured[alias] for alias in given if alias not in connections.settings}
    for alias in given:
        if configured[alias]["ENGINE"].endswith("sqlite3"):
            check_sqlite(configured[alias])
    connections.settings.update(new)
    try:
        yield
    finally:
        for alias in new:
            connections.settings.pop(alias)
            if hasattr(connections._connections, alias):
                del connections[alias]


def check_sqlite(database: dict) -> None:
    """No warning of djqueue's."""
    connection = ConnectionHandler({"default": database})["default"]
    found = {message.id for message in database_checks._server(connection)}
    connection.close()
    assert found <= {database_checks.LACKING}, "only its tables may be missing"


def run_tests(module: types.ModuleType) -> None:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromModule(module).run(result)
    assert result.testsRun and result.wasSuccessful(), result.errors + result.failures


def drain() -> None:
    """Run what the sample has enqueued."""
    assert Consumer(threads=1, periodic=False, drain=True).run() == 0
    for alias in queues:
        dead = queues[alias].failed
        notes = [lease.entry.errors for lease in dead.claim(10)]
        assert not notes, f"a command of the sample failed: {notes}"
        queues[alias].flush()
