"""The shape of the package: imports go down only, loading it is light, files and functions stay small."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import djqueue

PACKAGE = Path(djqueue.__file__).parent
FILES = sorted(path for path in PACKAGE.rglob("*.py") if "__pycache__" not in path.parts)

LAYERS = {
    # leaves
    "exceptions": 0, "notes": 0, "logs": 0, "crontab": 0, "codecs": 0, "message": 0, "events": 0, "conf": 0,
    "durations": 0, "backoff": 0, "callables": 0, "carriers": 0, "event_consumers": 0, "fingerprints": 0, "hints": 0,
    "forks": 0, "frames": 0, "registrations": 0, "requests": 0, "timetables": 0,
    # contract
    "backends.apart": 1, "backends.base": 1, "backends.batches": 1, "backends.entries": 1, "backends.guards": 1,
    "backends.gates": 1, "backends.items": 1, "backends.operators": 1, "backends.spending": 1, "backends.store": 1,
    "backends.windows": 1, "backends.wire": 1, "options": 1, "policies": 1, "verdicts": 1, "lanes": 1,
    "contradictions": 1,
    # adapters
    "backends": 2, "models": 2, "throttle": 2,
    # wiring
    "queues": 3,
    # life
    "decorators": 4, "classes": 4, "deferrable": 4, "registry": 4, "command": 4, "producer": 4, "executor": 4,
    "running": 4, "settle": 4, "results": 4, "kept": 4, "eager": 4, "merging": 4, "handlers": 4, "batches": 4,
    "jobs": 4, "batch_rules": 4, "batch_commands": 4, "standing": 4, "schedules": 4, "committed": 4,
    # consumer
    "consumer": 5,
    # edges
    "": 6, "apps": 6, "admin": 6, "checks": 6, "management": 6, "tasks_backend": 6, "testing": 6, "health": 6,
    "migrations": 6, "pytest_plugin": 6,
}  # fmt: skip
"""The layer of each module; a package stands for what is inside it and not named."""

WITHIN_A_LAYER = {
    0: [
        "durations", "callables", "hints", "registrations", "exceptions", "notes", "logs", "conf", "forks", "events",
        "event_consumers", "crontab", "timetables", "backoff", "codecs", "carriers", "fingerprints", "message",
        "requests", "frames",
    ],
    1: [
        "backends.batches", "backends.entries", "backends.windows", "backends.gates", "backends.guards",
        "backends.operators", "backends.items", "backends.wire", "backends.spending", "backends.store",
        "backends.apart", "backends.base", "lanes", "options", "contradictions", "verdicts", "policies",
    ],
    4: [
        "committed", "kept", "results", "running", "settle", "handlers", "eager", "merging", "producer", "registry",
        "command", "batches", "jobs", "executor", "decorators", "classes", "batch_rules", "batch_commands",
        "deferrable", "standing", "schedules",
    ],
}  # fmt: skip
"""Within a layer a module imports only those before it."""


def test_imports_go_down_only():
    rising = []
    for path in FILES:
        importer = _module(path)
        for imported, line in _imports(path, importer):
            if not _may(importer, imported):
                rising.append(f"{path.relative_to(PACKAGE.parent)}:{line} imports {imported}")
    assert rising == []


def test_every_module_has_a_layer():
    assert [str(path) for path in FILES if _key(_module(path)) is None] == []


def test_the_layer_test_sees_a_rising_import():
    assert _may("settle", "policies")
    assert not _may("policies", "settle")
    assert not _may("producer", "command")
    assert not _may("backends.base", "backends.memory")
    assert not _may("queues", "consumer.feeder")


def test_importing_djqueue_is_light():
    loaded = _loaded_by("import djqueue")
    assert "djqueue" in loaded
    heavy = {"redis", "boto3", "psycopg", "MySQLdb", "croniter", "django", "djqueue.models", "djqueue.backends.base"}
    assert heavy & loaded == set()


@pytest.mark.parametrize("name", djqueue.__all__)
def test_using_a_public_name_loads_no_server_and_no_model(name):
    loaded = _loaded_by(f"from django.conf import settings; settings.configure(); from djqueue import {name}")
    assert djqueue._HOMES[name] in loaded
    heavy = {
        "redis",
        "boto3",
        "psycopg",
        "MySQLdb",
        "djqueue.models",
        "djqueue.backends.redis.queue",
        "djqueue.backends.redis_backend",
    }
    assert heavy & loaded == set()


def test_the_public_names_are_there():
    assert {
        "Consumer",
        "PeriodicQueueCommand",
        "QueueCommand",
        "autodiscover",
        "current_message",
        "invoker",
        "periodic_command",
        "queue_command",
    } <= set(djqueue.__all__)
    for name in djqueue.__all__:
        assert getattr(djqueue, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        djqueue.no_such_name  # noqa: B018


def test_type_checkers_see_the_same_public_names():
    [typed] = [
        node
        for node in ast.parse((PACKAGE / "__init__.py").read_text()).body
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    assert {alias.name for line in typed.body for alias in line.names} == set(djqueue.__all__)


def test_commands_is_the_name_of_the_users_modules():
    named = [path for path in PACKAGE.rglob("commands*") if path.stem == "commands"]
    assert named == [PACKAGE / "management" / "commands"]


def test_no_module_is_longer_than_500_lines():
    """One that grows beyond that: is it one thing?"""
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_no_function_is_longer_than_40_lines():
    long = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _length(node) > 40:
                long[f"{path.relative_to(PACKAGE)}:{node.name}"] = _length(node)
    assert long == {}


def test_types_are_published():
    assert (PACKAGE / "py.typed").exists()


def _module(path: Path) -> str:
    """Its dotted name within the package; a package is its own name."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _key(module: str) -> str | None:
    """The name under which the table knows a module."""
    if module == "":
        return ""
    parts = module.split(".")
    names = [".".join(parts[:size]) for size in range(len(parts), 0, -1)]
    return next((name for name in names if name in LAYERS), None)


def _may(importer: str, imported: str) -> bool:
    own, other = _key(importer), _key(imported)
    if own is None or other is None:
        return False
    if LAYERS[own] != LAYERS[other]:
        return LAYERS[own] > LAYERS[other]
    order = WITHIN_A_LAYER.get(LAYERS[own], [])
    if own in order and other in order and own != other:
        return order.index(own) > order.index(other)
    return True


def _imports(path: Path, importer: str):
    """The modules of djqueue that a file imports, wherever in it, but for what only type checkers see."""
    tree = ast.parse(path.read_text())
    unseen = {id(node) for block in ast.walk(tree) if _for_types(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in unseen:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            assert not isinstance(node, ast.ImportFrom), f"{path}:{node.lineno} is a relative import"
            continue
        for name in names:
            if name == "djqueue" or name.startswith("djqueue."):
                yield _existing(name), node.lineno


def _existing(name: str) -> str:
    """The module in a dotted name whose last part may be something in that module."""
    inside = name.removeprefix("djqueue").lstrip(".")
    path = PACKAGE.joinpath(*inside.split(".")) if inside else PACKAGE
    is_module = path.is_dir() or path.with_suffix(".py").exists()
    return inside if is_module else inside.rpartition(".")[0]


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"


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
