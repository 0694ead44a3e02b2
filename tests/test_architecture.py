"""The shape of the package: imports never rise and have no cycle, loading it is light, functions stay small."""

import ast
import functools
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from inspect import isfunction
from pathlib import Path

import pytest

import djqueue
from djqueue.backends.base import BaseQueue
from djqueue.backends.items import ItemVerbs
from djqueue.backends.verbs import ConsumerVerbs, FourVerbs, OperatorVerbs

PACKAGE = Path(djqueue.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)

LAYERS = [
    {"conf", "exceptions", "health", "hints", "log_handlers", "signals", "utils", "models", "migrations", "version"}
    | {"words"},
    {"messages", "flow", "timetables"},
    {"policies", "backends"},
    {f"backends.{name}" for name in ("memory", "database", "redis", "sqs", "redis_backend")} | {"throttle", "wiring"},
    {"discovery", "registry", "running"},
    {"enqueueing", "results"},
    {"decorators", "classes", "deferrable"},
    {"schedules", "consumer", "tasks"},
    {"", "checks", "logs", "middleware", "testing"},
    {"operations"},
    {"dashboard", "integrations", "management", "templatetags"},
    {"admin", "apps", "pytest_plugin"},
]
"""Packages and modules from the ground up; a name stands for what is inside of it and not named itself."""
RANKS = {name: rank for rank, names in enumerate(LAYERS) for name in names}
FRONT_ENDS = [{"dashboard", "templatetags"}, {"integrations"}, {"management"}]
SERVES = {("management.commands.queue_consumer", "integrations.prometheus")}
"""The command that starts a consumer serves its metrics, if it is asked to: all else of a front end is its own."""
COMMAND_LINE = ("argparse", "django.core.management")
LONG = 500
HEAVY = {"redis", "boto3", "psycopg", "MySQLdb", "djqueue.models"}


def test_imports_never_rise():
    rising = [(own, other) for own, other in _edges() if _rank(other) > _rank(own)]
    assert rising == []


def test_imports_have_no_cycle():
    """Neither at run time nor for types."""
    TopologicalSorter(_graph()).prepare()


def test_no_front_end_imports_another():
    for front_end in FRONT_ENDS:
        others = set().union(*FRONT_ENDS) - front_end
        crossing = {(own, other) for own, other in _edges() if _top(own) in front_end and _top(other) in others}
        assert crossing <= SERVES


def test_operations_know_no_front_end():
    """Nor does what tests and checks a project, nor what words are made of."""
    assert _rank("words") < _rank("operations") < min(_rank(name) for names in FRONT_ENDS for name in names)
    assert max(_rank("checks"), _rank("testing")) < _rank("operations")


def test_only_the_command_line_reads_arguments():
    """And it alone raises CommandError."""
    readers = {_module(path) for path in FILES for name in _imported(path) if name.startswith(COMMAND_LINE)}
    assert {name for name in readers if _top(name) != "management"} == {"health"}


def test_these_tests_see_what_they_look_for():
    assert SERVES <= {*_edges()}
    assert "django.core.management.base.BaseCommand" in _imported(PACKAGE / "management" / "base.py")
    assert _rank("backends.base") < _rank("backends.memory.queue") < _rank("running.settle") < _rank("consumer")
    assert {"policies.options", "policies.outcomes"} <= _graph()["policies.policy"]
    assert "backends.database.checks" in _graph()["checks.servers"], "an import within a function"
    with pytest.raises(CycleError):
        TopologicalSorter(_graph() | {"policies.options": {"policies.policy"}}).prepare()


def test_importing_djqueue_is_light():
    loaded = _loaded_by("import djqueue")
    assert "djqueue" in loaded
    assert (HEAVY | {"croniter", "django", "djqueue.backends.base"}) & loaded == set()


def test_a_star_import_needs_no_package_that_may_be_missing():
    code = "import sys; sys.modules['django_tasks'] = None; from django.conf import settings; settings.configure()"
    assert "djqueue.tasks" not in _loaded_by(f"{code}; from djqueue import *")


def test_a_fork_before_there_are_settings_is_silent():
    code = "import os, djqueue.consumer.database_connections\nif child := os.fork(): os.waitpid(child, 0)"
    env = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_using_a_public_name_loads_no_server_and_no_model():
    loaded = _loaded_by_each([*djqueue.__all__, "task"])
    assert [name for name, modules in loaded.items() if djqueue._HOMES[name] not in modules] == []
    unwanted = HEAVY | {"djqueue.backends.redis.queue", "djqueue.backends.redis_backend"}
    assert {name: found for name, modules in loaded.items() if (found := unwanted & modules)} == {}


@pytest.mark.parametrize("name, library", [("redis", "redis"), ("sqs", "boto3")])
def test_a_backend_without_its_library_says_what_to_install(name, library):
    code = f"import sys; sys.modules[{library!r}] = None; import djqueue.backends.{name}.queue"
    done = subprocess.run([sys.executable, "-c", code], cwd=PACKAGE.parent, capture_output=True, text=True)
    assert f"pip install 'django-djqueue[{name}]'" in done.stderr


def test_the_public_names_are_there():
    promised = "Consumer PeriodicQueueCommand QueueCommand autodiscover current_message invoker periodic_command"
    assert {*promised.split(), "queue_command"} <= set(djqueue.__all__)
    for name in djqueue.__all__:
        assert getattr(djqueue, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        djqueue.no_such_name  # noqa: B018


def test_types_are_published_and_name_the_same_public_names():
    assert (PACKAGE / "py.typed").exists()
    [typed] = [
        node
        for node in ast.parse((PACKAGE / "__init__.py").read_text()).body
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    names = {alias.name for line in typed.body for alias in line.names}
    assert names == {*djqueue.__all__, "task"} == {*djqueue._HOMES}, "a star import leaves out task alone"


def test_commands_is_the_name_of_the_users_modules():
    named = [path for path in PACKAGE.rglob("commands*") if path.stem == "commands"]
    assert named == [PACKAGE / "management" / "commands"]


def test_long_modules_are_one_thing():
    """No limit, but a question: is it one thing?"""
    for path in FILES:
        if (lines := len(path.read_text().splitlines())) > LONG:
            warnings.warn(f"{path.relative_to(PACKAGE)} has {lines} lines: is it one thing?", stacklevel=1)


def test_a_queue_has_few_verbs():
    """Of a consumer, of operators and for items together, with the four that all others stand on."""
    parts = FourVerbs, ConsumerVerbs, OperatorVerbs, ItemVerbs
    verbs = [name for part in parts for name, value in vars(part).items() if isfunction(value) and name[0] != "_"]
    found = {name for one in BaseQueue.__mro__ for name, value in vars(one).items() if isfunction(value)}
    assert sorted(verbs) == sorted(name for name in found if name[0] != "_")
    assert len(verbs) <= 41


def test_no_function_is_longer_than_40_lines():
    long = {}
    for path in FILES:
        for node in _nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _length(node) > 40:
                long[f"{path.relative_to(PACKAGE)}:{node.name}"] = _length(node)
    assert long == {}


def _module(path: Path) -> str:
    """Its dotted name within the package; a package is its own name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _rank(module: str) -> int:
    parts = module.split(".")
    return next(RANKS[name] for size in range(len(parts), -1, -1) if (name := ".".join(parts[:size])) in RANKS)


def _top(module: str) -> str:
    return module.partition(".")[0]


def _edges() -> list[tuple[str, str]]:
    """Each module with each that it imports."""
    return [(own, other) for own, others in _graph().items() for other in others]


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    return [*ast.walk(ast.parse(path.read_text()))]


def _imported(path: Path) -> list[str]:
    """The dotted names that a file imports, wherever in it, for types too."""
    found: list[str] = []
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} is a relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def _imports(path: Path) -> Iterator[str]:
    """The modules of djqueue that a file imports."""
    yield from (_existing(name) for name in _imported(path) if _top(name) == "djqueue")


def _existing(name: str) -> str:
    """The module in a dotted name whose last part may be something in that module."""
    inside = name.removeprefix("djqueue").lstrip(".")
    path = PACKAGE.joinpath(*inside.split(".")) if inside else PACKAGE
    is_module = path.is_dir() or path.with_suffix(".py").exists()
    return inside if is_module else inside.rpartition(".")[0]


def _length(node) -> int:
    """Its lines; a class inside of it has functions of its own."""
    inner = (one for one in ast.walk(node) if isinstance(one, ast.ClassDef))
    return node.end_lineno - node.lineno + 1 - sum(one.end_lineno - one.lineno + 1 for one in inner)


def _loaded_by(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def _loaded_by_each(names: list[str]) -> dict[str, set[str]]:
    """The modules that are loaded after one public name of djqueue was used, for each of them.

    A fresh interpreter with settings is forked for each, as each start of Python takes a second of processor.
    """
    code = f"""
        import os, sys
        from django.conf import settings
        settings.configure()
        import djqueue
        for name in {names}:
            if os.fork() == 0:
                getattr(djqueue, name)
                print(name, *sys.modules, flush=True)
                os._exit(0)
            assert os.wait()[1] == 0, name
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == names
    return {name: {*modules} for name, *modules in lines}


@functools.cache
def _graph() -> dict[str, set[str]]:
    """Each module and those that it imports."""
    return {_module(path): {*_imports(path)} - {_module(path)} for path in FILES}
