"""Checks the commands in console, ini and Dockerfile samples: each program has its own rule, an unknown one fails."""

import configparser
import json
import re
import shlex
from pathlib import Path

from django.core.management import CommandError, get_commands, load_command_class

from djqueue import health
from tests.support.documents import ROOT, Block, scripts

_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*$")


def command_lines(block: Block) -> list[str]:
    """What a sample has a machine run."""
    return {"console": _of_console, "ini": _of_ini, "docker": _of_dockerfile, "yaml": _of_yaml}[block.language](block)


def _of_console(block: Block) -> list[str]:
    lines = block.text.replace("\\\n", " ").splitlines()
    commands = [line[2:] for line in lines if line.startswith("$ ")]
    assert commands, f"{block.where}: no line begins with '$ '"
    return commands


def _of_ini(block: Block) -> list[str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str
    parser.read_string(block.text, block.where)
    found = [
        value
        for section in parser.sections()
        for name, value in parser[section].items()
        if name in ("command", "ExecStart")
    ]
    assert found, f"{block.where}: it starts nothing"
    return found


def _of_dockerfile(block: Block) -> list[str]:
    steps = dict(line.split(" ", 1) for line in block.text.splitlines() if line.strip())
    known = {"FROM", "WORKDIR", "ENV", "COPY", "RUN", "USER", "CMD", "STOPSIGNAL", "HEALTHCHECK"}
    assert steps.keys() <= known, block.where
    lists = [steps["CMD"], *(step.partition(" CMD ")[2] for name, step in steps.items() if name == "HEALTHCHECK")]
    return [*(shlex.join(json.loads(one)) for one in lists), steps["RUN"]]


def _of_yaml(block: Block) -> list[str]:
    found = re.findall(r"^ *command: (\[.*\])$", block.text, re.M)
    assert found, f"{block.where}: it starts nothing"
    return [shlex.join(json.loads(command)) for command in found]


def check(line: str) -> None:
    """AssertionError unless the program, the command and all of its switches exist."""
    for part in re.split(r" && | & ?| \| ", line):
        words = [word for word in shlex.split(part, comments=True) if word != "sudo"]
        while words and _ASSIGNMENT.match(words[0]):
            words.pop(0)
        if words:
            program = Path(words[0]).name
            assert program in PROGRAMS, f"no test knows the program {program!r} in: {line}"
            PROGRAMS[program](words[1:])


def django_command(line: str) -> list[str] | None:
    """The management command that a line runs, with its arguments; None if it runs none."""
    words = [Path(word).name if "/bin/" in word else word for word in shlex.split(line, comments=True)]
    for start in (["django-admin"], ["python", "manage.py"], ["python", "-m", "django"]):
        for place in range(len(words)):
            if words[place : place + len(start)] == start:
                return words[place + len(start) :]
    return None


def _django(arguments: list[str]) -> None:
    name, *switches = arguments
    for place, switch in enumerate(switches[:-1]):
        if switch == "--database":
            switches[place + 1] = "default"  # the samples have aliases of their own
    assert name in get_commands(), f"there is no management command {name!r}"
    app = get_commands()[name]
    command = load_command_class(app, name) if isinstance(app, str) else app
    try:
        command.create_parser("django-admin", name).parse_args(switches)
    except CommandError as error:
        raise AssertionError(f"{name} {shlex.join(switches)}: {error}") from error


def _script(path: str, *arguments: str) -> None:
    text = (ROOT / path).read_text()
    for switch in (word for word in arguments if word.startswith("-")):
        assert f'"{switch}"' in text, f"{path} has no switch {switch}"


def _python(arguments: list[str]) -> None:
    if arguments[0] == "-m":
        modules = {"django": _django, "djqueue.health": _health, "pytest": _pytest, "venv": _any}
        return modules[arguments[1]](arguments[2:])
    if arguments[0].startswith(("example_project/", "docs/drawings/")):
        return _script(*arguments)
    if arguments[0] in {script.file for script in scripts()}:
        return
    assert arguments[0] == "manage.py", arguments
    return _django(arguments[1:])


def _health(arguments: list[str]) -> None:
    health.parser().parse_args(arguments)


def _shell(arguments: list[str]) -> None:
    """A script of one line: each of its commands."""
    switch, script = arguments
    assert switch == "-c"
    for part in re.split(r"; | \|\| ", script):
        if (command := re.sub(r"^(?:(?:while|do|if|then) )+", "", part)) not in ("fi", "done"):
            check(command)


def _pytest(arguments: list[str]) -> None:
    for path in arguments:
        assert path.startswith("-") or (ROOT / path.partition("::")[0]).exists(), f"there is no {path}"


def _pip(arguments: list[str]) -> None:
    assert arguments[0] == "install"
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    for word in arguments[1:]:
        package, _, extras = word.rstrip("]").partition("[")
        if package == config["metadata"]["name"]:
            for extra in filter(None, extras.split(",")):
                assert extra in config["options.extras_require"], f"there is no extra {extra!r}"


def _make(arguments: list[str]) -> None:
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    for word in arguments:
        assert "=" in word or word in targets, f"the Makefile has no target {word!r}"


def _any(arguments: list[str]) -> None:
    """Another project's program."""


PROGRAMS = {
    "django-admin": _django,
    "python": _python,
    "pip": _pip,
    "make": _make,
    "sh": _shell,
    **dict.fromkeys(
        ("cd", "git", "export", "docker", "supervisorctl", "systemctl", "journalctl", "kill", "sleep"), _any
    ),
}
