"""Where commands are: the modules that are imported at the start, and the module that a command's name leads to."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from itertools import accumulate
from traceback import walk_tb
from types import ModuleType

from django.apps import AppConfig, apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import module_has_submodule

from djqueue import conf
from djqueue.exceptions import UnknownCommand
from djqueue.messages.failures import kind_of, text_of

OWN_APP = "djqueue"
LONGEST_TEXT = 300
"""Characters of an exception's text in the reason why a command is not found."""
TASK_PACKAGES = "django.tasks.", "django_tasks."
"""Where Django's tasks are, of Django 6 and of the package for 5.2."""
NOT_OURS = "If it is not for djqueue, leave {!r} out of QUEUE_MODULES."
IN_TASKS = (
    'See the setting TASKS: the BACKEND of djqueue is "djqueue.tasks.DjqueueBackend", and QUEUES, unless it is empty, '
    "lists the queue_name of every task."
)
"""What to do about an error while a module is imported."""


# ---- At the start


def autodiscover() -> None:
    """Import the modules of ``QUEUE_MODULES`` of every installed app. An error in one of them is raised."""
    for app, module in _discoverable():
        if module_has_submodule(app.module, module):
            try:
                import_module(f"{app.name}.{module}")
            except Exception as error:
                hint = IN_TASKS if _is_of_tasks(error) else NOT_OURS.format(module)
                error.add_note(f"In the module {app.name}.{module}, which djqueue imports at the start. {hint}")
                raise


def _is_of_tasks(error: Exception) -> bool:
    """Whether Django's tasks raised it: a setting is wrong, or a task does not fit the settings."""
    places = [type(error).__module__]
    if frames := [frame for frame, _ in walk_tb(error.__traceback__)]:
        places.append(frames[-1].f_globals.get("__name__") or "")
    return any(f"{place}.".startswith(TASK_PACKAGES) for place in places)


def is_discovered(path: str) -> bool:
    """Whether a module is one of those that are imported at the start."""
    return any(path == f"{app.name}.{module}" for app, module in _discoverable())


def modules_nowhere() -> list[str]:
    """The names in QUEUE_MODULES, next to the usual ones, that are of a module in no installed app."""
    usual = conf.SETTINGS["QUEUE_MODULES"].default
    found = {module for app, module in _discoverable() if module_has_submodule(app.module, module)}
    return [name for name in _names("QUEUE_MODULES") if name not in found and name not in usual]


def _discoverable() -> Iterator[tuple[AppConfig, str]]:
    modules = _names("QUEUE_MODULES")
    return ((app, module) for app in apps.get_app_configs() if app.name != OWN_APP for module in modules)


# ---- By name


def is_importable(path: str) -> bool:
    """Whether a module may be imported for a command: in the package of an installed app, or below QUEUE_IMPORT."""
    packages = {name for app in apps.get_app_configs() for name in (app.name, app.module.__name__)}
    return any(path == package or path.startswith(f"{package}.") for package in packages | {*_names("QUEUE_IMPORT")})


def packages_nowhere() -> list[str]:
    """The names in QUEUE_IMPORT of packages that there are not. The packages around them are imported."""
    return [name for name in _names("QUEUE_IMPORT") if not _is_there(name)]


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except Exception:  # of a package around it, which may raise anything
        return False


def is_findable(name: str) -> bool:
    """Whether a process that has not imported the module of a command finds it by its name."""
    return _why_misnamed(name) == "" and is_importable(name.rpartition(".")[0])


def import_module_of(name: str) -> ModuleType:
    """The innermost module of a dotted name, imported if it may be.

    Raises UnknownCommand for a name that leads to no such module, and if importing it fails.
    """
    if why := _why_misnamed(name):
        raise UnknownCommand(why)
    module = None
    for path in accumulate(name.split(".")[:-1], "{}.{}".format):
        if sys.modules.get(path) is not None or _may_follow(module, path):
            module = _imported(path)
        elif module is not None:
            break
    if module is None:
        raise UnknownCommand(_outside(name))
    return module


def object_of(name: str, module: ModuleType) -> object:
    """What a module holds by a dotted name. Raises UnknownCommand.

    What the module would import only when it is asked for it does not count.
    """
    found: object = module
    rest = name.removeprefix(f"{module.__name__}.")
    try:
        for part in rest.split("."):
            found = inspect.getattr_static(found, part)
    except AttributeError:
        if "." in rest and not is_importable(name.rpartition(".")[0]):
            raise UnknownCommand(_outside(name)) from None
        raise UnknownCommand(
            f"{module.__name__} has no {rest!r} here: it was renamed or removed, or its sender runs other code"
        ) from None
    return found


def _may_follow(module: ModuleType | None, path: str) -> bool:
    """Whether to import a module, which is in the package of the module before it, if there is one."""
    return is_importable(path) and (module is None or module_has_submodule(module, path.rpartition(".")[2]))


def _imported(path: str) -> ModuleType:
    try:
        return import_module(path)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        text = f"importing {path} raised {kind_of(error)}: {text_of(error)[:LONGEST_TEXT]}"
        raise UnknownCommand(text) from error


def _why_misnamed(name: str) -> str:
    """Why a name can be of no command in a module; "" if it can."""
    parts = name.split(".")
    if "__main__" in parts:
        return "it was declared in a script, which no consumer imports: declare it in a module of an installed app"
    if len(parts) < 2 or not all(part.isidentifier() and not part.startswith("__") for part in parts):
        return "that is no dotted name of a command in a module"
    return ""


def _outside(name: str) -> str:
    package = name.partition(".")[0]
    return (
        "its module is not in the package of an installed app here: move it there, or name its package in a setting, "
        f"as in QUEUE_IMPORT = ({package!r},)"
    )


def _names(setting: str) -> Iterable[str]:
    """The value of a setting that lists names. Raises ImproperlyConfigured for one that does not."""
    names, kind = conf.get(setting), conf.SETTINGS[setting].kind
    if not kind.accepts(names):
        raise ImproperlyConfigured(f"{setting} is {names!r}: give {kind.words}.")
    return names
