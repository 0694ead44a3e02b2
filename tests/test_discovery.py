"""Commands wherever they live: modules that are imported at the start, and by the names of messages."""

import importlib
import os
import sys
import threading
from textwrap import dedent

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

import djqueue
from djqueue import queue_command, queues, schedules
from djqueue.exceptions import UnknownCommand
from djqueue.policies.outcomes import Outcome
from djqueue.registry import registry
from djqueue.running.executor import execute
from tests.support.consumer import claim_one, message_for, only
from tests.support.processes import ROOT, until

COMMAND = """\
from djqueue import QueueCommand, queue_command
from tests.app.commands import write_down

write_down("imported " + __name__)

@queue_command
def say(text="said"):
    write_down(text)

@queue_command
async def whisper(text="whispered"):
    write_down(text)

class Work(QueueCommand):
    def execute(self):
        write_down("worked")

def plain():
    pass

NUMBER = 5
"""


class Folder:
    """Modules on the path, which write down that they are imported."""

    def __init__(self, path, ledger):
        self.path, self.ledger = path, ledger

    def write(self, name, text=COMMAND):
        """Write the module of a dotted name, and its packages."""
        *packages, module = name.split(".")
        path = self.path
        for package in packages:
            path = path / package
            path.mkdir(exist_ok=True)
            (path / "__init__.py").touch()
        (path / f"{module}.py").write_text(dedent(text))
        importlib.invalidate_caches()

    @property
    def written(self):
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "code"
    path.mkdir()
    return Folder(path, tmp_path / "ledger")


@pytest.fixture
def folder_on_path(folder, monkeypatch, settings):
    """The folder is on the path of this process, with the app "corner"; what is imported from it is forgotten."""
    monkeypatch.setenv("DJQUEUE_LEDGER", str(folder.ledger))
    monkeypatch.syspath_prepend(folder.path)
    folder.write("corner.nothing", "")
    before = {*sys.modules}
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "corner"]
    with only(*registry):
        yield folder
    for name in {*sys.modules} - before:
        if name.partition(".")[0] in os.listdir(folder.path):
            del sys.modules[name]


def why(name):
    """Why the command of that name is not found."""
    with pytest.raises(UnknownCommand) as caught:
        registry.find(name)
    return str(caught.value).removeprefix(f"unknown command {name!r}: ")


class TestByName:
    @pytest.mark.parametrize("module", ["corner.jobs", "corner.views", "corner.deep.down.jobs"])
    @pytest.mark.parametrize("name", ["say", "whisper", "Work"])
    def test_a_command_in_any_module_of_an_installed_app_is_found(self, folder_on_path, module, name):
        folder_on_path.write(module)
        assert registry.find(f"{module}.{name}").name == f"{module}.{name}"
        assert folder_on_path.written == [f"imported {module}"]

    def test_so_is_one_in_the_package_itself(self, folder_on_path):
        (folder_on_path.path / "corner" / "__init__.py").write_text(
            "from djqueue import queue_command\n@queue_command\ndef say(): 0\n"
        )
        sys.modules.pop("corner")
        assert registry.find("corner.say").name == "corner.say"

    @pytest.mark.parametrize("name", ["outside.jobs.say", "corner_too.jobs.say", "outside.jobs.deep.say"])
    def test_a_module_outside_is_not_imported(self, folder_on_path, name):
        folder_on_path.write("outside.jobs")
        folder_on_path.write("corner_too.jobs")
        package = name.partition(".")[0]
        assert why(name).endswith(f"name its package in a setting, as in QUEUE_IMPORT = ({package!r},)")
        assert package not in sys.modules and folder_on_path.written == []

    @pytest.mark.parametrize("allowed", ["outside", "outside.jobs"])
    def test_unless_queue_import_names_its_package(self, folder_on_path, allowed):
        folder_on_path.write("outside.jobs")
        with override_settings(QUEUE_IMPORT=(allowed,)):
            assert registry.find("outside.jobs.say").name == "outside.jobs.say"

    def test_queue_import_does_not_reach_beside_its_package(self, folder_on_path):
        folder_on_path.write("outside.jobs")
        folder_on_path.write("outside.jobs_too")
        with override_settings(QUEUE_IMPORT=("outside.jobs",)):
            assert "QUEUE_IMPORT" in why("outside.jobs_too.say")
        assert folder_on_path.written == []

    def test_a_bad_queue_import_is_refused(self, folder_on_path):
        with override_settings(QUEUE_IMPORT="outside"), pytest.raises(ImproperlyConfigured, match="QUEUE_IMPORT is"):
            registry.find("outside.jobs.say")

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("corner.jobs.plain", "it is a function, not a command: decorate it with queue_command"),
            ("corner.jobs.QueueCommand", "it is the class QueueCommand, which is not registered as a command"),
            ("corner.jobs.NUMBER", "it is an object of the class int, which is not registered as a command"),
            (
                "corner.jobs.gone",
                "corner.jobs has no 'gone' here: it was renamed or removed, or its sender runs other code",
            ),
            (
                "corner.gone.say",
                "corner has no 'gone.say' here: it was renamed or removed, or its sender runs other code",
            ),
            ("__main__.say", "it was declared in a script, which no consumer imports: declare it in a module of an "),
            ("corner.__main__.say", "it was declared in a script"),
            ("corner.__init__.say", "that is no dotted name"),
            ("corner.jobs.outer.<locals>.say", "that is no dotted name"),
            ("say", "that is no dotted name"),
            ("corner..jobs.say", "that is no dotted name"),
            ("", "that is no dotted name"),
        ],
    )
    def test_the_reason_says_what_is_wrong(self, folder_on_path, name, reason):
        folder_on_path.write("corner.jobs")
        assert why(name).startswith(reason)
        assert folder_on_path.written in ([], ["imported corner.jobs"])

    def test_a_module_is_not_asked_for_what_it_would_import(self, folder_on_path):
        lazy = "def __getattr__(name):\n    import outside.jobs\n    return outside.jobs.say\n"
        folder_on_path.write("outside.jobs")
        folder_on_path.write("corner.lazy", lazy)
        assert "has no 'say'" in why("corner.lazy.say")
        assert "outside" not in sys.modules

    def test_the_package_of_a_queue_import_that_is_not_there(self, folder_on_path):
        with override_settings(QUEUE_IMPORT=("nosuch.jobs",)):
            assert (
                why("nosuch.jobs.say") == "importing nosuch.jobs raised ModuleNotFoundError: No module named 'nosuch'"
            )


class TestErrors:
    BROKEN = COMMAND + "\nraise SystemExit('no')\n"

    def test_it_is_the_reason_and_is_logged_with_its_traceback(self, folder_on_path, caplog):
        folder_on_path.write("corner.broken", self.BROKEN)
        assert why("corner.broken.say") == "importing corner.broken raised SystemExit: no"
        [record] = [one for one in caplog.records if one.name == "djqueue.registry"]
        assert record.getMessage() == "corner.broken.say cannot be imported"
        assert record.exc_info[0] is SystemExit

    def test_whatever_an_import_raises_is_a_reason(self, folder_on_path):
        folder_on_path.write("corner.broken", COMMAND + "\nclass Stop(BaseException): pass\nraise Stop('now')\n")
        assert why("corner.broken.say") == "importing corner.broken raised Stop: now"

    def test_the_import_is_not_tried_for_each_message(self, folder_on_path, monkeypatch):
        folder_on_path.write("corner.broken", self.BROKEN)
        assert why("corner.broken.say") == why("corner.broken.say")
        assert folder_on_path.written == ["imported corner.broken"]
        monkeypatch.setattr("djqueue.registry.LOOK_AGAIN", 0)
        folder_on_path.write("corner.broken", COMMAND + "\n# fixed\n")
        assert registry.find("corner.broken.say")
        assert folder_on_path.written == ["imported corner.broken"] * 2

    def test_the_commands_of_a_module_that_failed_halfway_are_not_there(self, folder_on_path):
        folder_on_path.write("corner.broken", self.BROKEN)
        why("corner.broken.say")
        assert registry.get("corner.broken.say") is registry.get("corner.broken.Work") is None

    def test_a_thread_does_not_get_a_command_whose_module_may_still_fail(self, folder_on_path):
        folder_on_path.write(
            "corner.jobs", COMMAND + "\nimport time\nwrite_down('declared')\ntime.sleep(0.3)\nraise SystemExit('no')"
        )
        first = threading.Thread(target=why, args=["corner.jobs.say"])
        first.start()
        until(lambda: "declared" in folder_on_path.written)
        assert why("corner.jobs.say") == "importing corner.jobs raised SystemExit: no"
        first.join()

    @pytest.mark.parametrize("text, imports", [(COMMAND, 1), (BROKEN, 1)], ids=["good", "broken"])
    def test_threads_import_it_once(self, folder_on_path, text, imports):
        folder_on_path.write("corner.jobs", text)
        found, barrier = [], threading.Barrier(8)

        def look():
            barrier.wait()
            try:
                found.append(registry.find("corner.jobs.say"))
            except UnknownCommand as error:
                found.append(str(error))

        threads = [threading.Thread(target=look) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8 and len({*found}) == 1
        assert folder_on_path.written == ["imported corner.jobs"] * imports


class TestAdapters:
    @pytest.fixture
    def add_adapter(self, monkeypatch):
        adapters = []
        monkeypatch.setattr(registry, "adapters", adapters)
        return adapters.append

    def test_an_adapter_makes_a_command_of_what_the_module_has(self, folder_on_path, add_adapter):
        add_adapter(lambda found, name: None)
        add_adapter(lambda found, name: queue_command(found) if callable(found) else None)
        folder_on_path.write("corner.jobs")
        assert registry.find("corner.jobs.plain") is registry["corner.jobs.plain"]
        assert "an object of the class int" in why("corner.jobs.NUMBER")

    def test_it_is_asked_about_modules_that_were_imported_elsewhere(self, folder_on_path, add_adapter):
        add_adapter(lambda found, name: queue_command(found))
        folder_on_path.write("outside.jobs")
        importlib.import_module("outside.jobs")
        assert registry.find("outside.jobs.plain").name == "outside.jobs.plain"


@pytest.mark.backends("memory")
class TestMessages:
    """What leads to an import is signed: the command's name, the pickled arguments, a schedule."""

    @pytest.fixture
    def queue(self, backend, settings, folder_on_path):
        settings.QUEUES = backend.queues()
        folder_on_path.write("corner.jobs")
        return queues["default"]

    def test_a_message_is_run_by_the_command_that_its_signed_name_leads_to(self, queue, folder_on_path):
        queue.put([message_for(queue, "corner.jobs.say", "hello")])
        assert execute(queue, claim_one(queue)).outcome is Outcome.DONE
        assert folder_on_path.written == ["imported corner.jobs", "hello"]

    def test_one_with_another_signature_imports_nothing(self, queue, folder_on_path):
        with override_settings(SECRET_KEY="of someone else, who does not know ours"):
            queue.put([message_for(queue, "corner.jobs.say")])
        assert execute(queue, claim_one(queue)).outcome is Outcome.FAILED
        assert folder_on_path.written == []

    def test_the_unsigned_name_beside_a_message_imports_nothing(self, queue, folder_on_path):
        folder_on_path.write("corner.other")
        entry = message_for(queue, "corner.jobs.say")
        entry.command = "corner.other.whisper"
        queue.put([entry])
        assert execute(queue, claim_one(queue)).outcome is Outcome.DONE
        assert folder_on_path.written == ["imported corner.jobs", "said"]

    def test_a_message_whose_module_cannot_be_imported_waits(self, queue, folder_on_path):
        folder_on_path.write("corner.broken", "1 / 0")
        queue.put([message_for(queue, "corner.broken.say")])
        verdict = execute(queue, claim_one(queue))
        assert verdict.outcome is Outcome.POSTPONED
        assert verdict.reason.endswith("importing corner.broken raised ZeroDivisionError: division by zero")

    def test_a_schedule_by_name_imports_it(self, queue, folder_on_path):
        schedules.add("hourly", "corner.jobs.say", every=3600)
        assert [one.command for one in schedules.list()] == ["corner.jobs.say"]


class TestAtTheStart:
    def test_the_modules_of_queue_modules_are_imported(self, folder_on_path):
        for name in ("commands", "tasks", "jobs"):
            folder_on_path.write(f"corner.{name}")
        djqueue.autodiscover()
        assert folder_on_path.written == ["imported corner.commands", "imported corner.tasks"]
        with override_settings(QUEUE_MODULES=["jobs", "nosuch"]):
            djqueue.autodiscover()
        assert folder_on_path.written[2:] == ["imported corner.jobs"]

    def test_a_package_is_imported_and_its_modules_are_found_by_name(self, folder_on_path):
        folder_on_path.write("corner.tasks.mail")
        djqueue.autodiscover()
        assert "corner.tasks" in sys.modules and folder_on_path.written == []
        assert registry.find("corner.tasks.mail.say")

    def test_an_error_says_how_the_module_is_left_out(self, folder_on_path):
        folder_on_path.write("corner.tasks", "import celery_that_is_not_installed")
        with pytest.raises(ModuleNotFoundError) as caught:
            djqueue.autodiscover()
        [note] = caught.value.__notes__
        assert note.startswith("In the module corner.tasks, which djqueue imports at the start.")
        assert note.endswith("leave 'tasks' out of QUEUE_MODULES.")
        with override_settings(QUEUE_MODULES=("commands",)):
            djqueue.autodiscover()

    @pytest.mark.parametrize("modules", ["tasks", ["corner.tasks"], [5], None])
    def test_a_bad_queue_modules_is_refused(self, modules):
        with override_settings(QUEUE_MODULES=modules), pytest.raises(ImproperlyConfigured, match="QUEUE_MODULES is"):
            djqueue.autodiscover()


@pytest.mark.slow
@pytest.mark.backends("sqlite", "redis")
class TestConsumer:
    """Consumers as processes, which have imported none of it."""

    @pytest.fixture
    def corner_site(self, site, folder, settings):
        """A site with the app "corner"."""
        folder.write("corner.nothing", "")
        site.settings["INSTALLED_APPS"] = [*settings.INSTALLED_APPS, "corner"]
        return site

    def consumer(self, site, folder, *options):
        path = os.pathsep.join([str(folder.path), str(ROOT)])
        return site.consumer(*options, env={"PYTHONPATH": path})

    def put(self, *names):
        queue = queues["default"]
        queue.put([message_for(queue, name) for name in names])

    @pytest.mark.parametrize("options", [(), ("--coroutines", "10"), ("--processes", "2")])
    def test_a_command_in_any_module_of_an_app(self, corner_site, folder, options):
        for module in ("jobs", "views"):
            folder.write(f"corner.{module}")
        self.put("corner.jobs.say", "corner.views.whisper", "corner.jobs.Work", "corner.jobs.whisper")
        process = self.consumer(corner_site, folder, *options)
        until(lambda: queues["default"].stats().done == 4)
        process.term()
        assert process.wait() == 0
        done = sorted(line for line in folder.written if not line.startswith("imported"))
        assert done == ["said", "whispered", "whispered", "worked"]

    def test_a_package_outside_of_the_apps_needs_queue_import(self, corner_site, folder):
        folder.write("outside.jobs")
        self.put("outside.jobs.say", "tests.app.commands.explode")
        process = self.consumer(corner_site, folder, "--limit", "1")
        assert process.wait() == 0
        process.wait_for("unknown command 'outside.jobs.say'")
        process.wait_for("QUEUE_IMPORT = ('outside',)")
        assert folder.written == []
        corner_site.settings["QUEUE_IMPORT"] = ["outside"]
        assert self.consumer(corner_site, folder, "--limit", "1").wait() == 0
        assert folder.written == ["imported outside.jobs", "said"]

    def test_an_import_error_is_told_and_the_message_waits_until_it_is_fixed(self, corner_site, folder):
        folder.write("corner.broken", COMMAND + "\n1 / 0\n")
        self.put("corner.broken.say", "corner.broken.say", "tests.app.commands.explode")
        process = self.consumer(corner_site, folder, "--limit", "1")
        process.wait_for("importing corner.broken raised ZeroDivisionError: division by zero")
        assert process.wait() == 0
        assert (folder.written, queues["default"].stats().failed) == (["imported corner.broken"], 1)
        folder.write("corner.broken")
        assert self.consumer(corner_site, folder, "--limit", "2").wait() == 0
        assert folder.written[-2:] == ["said", "said"]

    @pytest.mark.parametrize("options", [(), ("--coroutines", "10")])
    def test_a_forged_message_imports_nothing(self, corner_site, folder, options):
        folder.write("corner.jobs")
        with override_settings(SECRET_KEY="of someone else, who does not know ours"):
            self.put("corner.jobs.say", "corner.jobs.whisper", "corner.jobs.Work")
        assert self.consumer(corner_site, folder, "--drain", *options).wait() == 0
        assert queues["default"].stats().failed == 3
        assert folder.written == []
