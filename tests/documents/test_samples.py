"""Every sample in README.rst and docs/ runs, and every table there says what the code says."""

import re
import shlex

import docutils.core
import pytest
from django.core.management import call_command

import djqueue
from djqueue import queues
from djqueue.backends.base import Entry
from djqueue.messages.envelope import new_id
from tests.support import document_commands
from tests.support.consumer import only
from tests.support.document_runner import Runner
from tests.support.documents import OTHERS, ROOT, UnknownBlock, blocks, blocks_of_others, documents, parse
from tests.support.redis_servers import free_port

README = ROOT / "README.rst"
DATABASE = {"CLASS": "djqueue.backends.database.DatabaseQueue"}
TASKS = {"BACKEND": "djqueue.tasks.DjqueueBackend", "QUEUES": []}
ALIASES = ("default", "mail", "slow", "reports")
PAGES = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in documents()]
COMMANDS = [
    pytest.param(line, id=f"{block.where}-{number}")
    for path in documents()
    for block in blocks(path, "console", "ini", "docker", "yaml")
    for number, line in enumerate(document_commands.command_lines(block))
]


def queue_consumers() -> list[list[str]]:
    """The arguments of every queue_consumer that is started in the documents, each once."""
    found = [document_commands.django_command(param.values[0]) for param in COMMANDS]
    wanted = {tuple(words) for words in found if words and words[0] == "queue_consumer" and "--reload" not in words}
    return [list(words) for words in sorted(wanted)]


def looks() -> list[list[str]]:
    """Every other command of djqueue's that is shown, each once; one that never ends, or runs code, is only parsed."""
    found = [document_commands.django_command(param.values[0]) for param in COMMANDS]
    wanted = {tuple(words) for words in found if words and words[0] in ("queue_stats", "queue_errors", "check")}
    return [list(words) for words in sorted(wanted) if not {"--watch", "--deploy", "rehearse"}.intersection(words)]


@pytest.fixture(autouse=True)
def _no_commands_of_other_tests():
    with only():
        yield


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", PAGES)
def test_every_python_sample_runs(path, tmp_path, settings):
    settings.QUEUES = {} if path == README else dict.fromkeys(ALIASES, DATABASE)  # its first steps set none
    settings.TASKS = dict.fromkeys(("default", "djqueue"), TASKS)
    with Runner(tmp_path, path.stem) as runner:
        for block in [block for block in blocks(path, "python") if not block.is_script]:
            try:
                runner.run(block)
            except Exception as error:
                error.add_note(f"in the sample at {block.where}")
                raise


def test_samples_of_other_libraries_compile_and_stand_beside_ours():
    for path in documents():
        captions = {block.caption for block in parse(path, path.read_text())} - {""}
        assert captions <= OTHERS | {"djqueue"}, path
        theirs = blocks_of_others(path)
        for block in [block for block in theirs if block.language == "python"]:
            compile(block.code, block.where, "exec")
            assert "djqueue" not in block.text, block.where
        assert not theirs or (path.parent.name == "coming-from" and len(captions) == 2), path


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_and_switch_in_the_documents_exists(line):
    document_commands.check(line)


@pytest.mark.slow
@pytest.mark.parametrize("words", queue_consumers(), ids=shlex.join)
def test_every_consumer_in_the_documents_starts_and_drains(words, tmp_path, make_site):
    site = make_site({alias: {"CLASS": "djqueue.backends.memory.MemoryQueue"} for alias in ALIASES})
    process = site.start(*redirected(words, tmp_path), "--drain")
    assert process.wait() == 0, process.output


def redirected(words: list[str], folder) -> list[str]:
    """The same arguments with their files in a folder that exists and the settings of the tests."""
    kept = [word for word in words if not word.startswith("--settings")]
    for place, word in enumerate(kept):
        if word == "--metrics":
            kept[place + 1] = str(free_port())
        elif word.startswith("--logfile="):
            kept[place] = f"--logfile={folder}/queue.log"
        elif word in ("-l", "--logfile"):
            kept[place + 1] = f"{folder}/queue.log"
        elif word.startswith("--alive="):
            kept[place] = f"--alive={folder}/alive"
        elif word == "--alive":
            kept[place + 1] = f"{folder}/alive"
    return kept


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("words", looks(), ids=shlex.join)
def test_the_commands_that_look_inside_run_as_they_are_shown(words, settings, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where they may write files
    settings.QUEUES = dict.fromkeys(ALIASES, DATABASE)
    shown = re.findall(r"\b(?:[0-9a-f]{8}|[0-9a-f]{32})\b", shlex.join(words))
    queues["default"].failed.put([Entry(b"", id, command="shop.commands.charge") for id in shown or [new_id()]])
    call_command(*words)
    assert capsys.readouterr().out


def test_no_sample_can_hide():
    hidden = {
        "a language that nobody runs": ".. code-block:: ruby\n\n   puts 1\n",
        "no language": ".. code-block::\n\n   1\n",
        "an empty block": ".. code-block:: python\n\nText\n",
        "a literal block": "As follows::\n\n    import this\n",
        "a directive that includes": ".. literalinclude:: ../tests/settings.py\n",
        "another name of code-block": ".. code:: python\n\n   1\n",
        "a doctest": "Text\n\n>>> 1 + 1\n2\n",
        "a command in the text": "Then\n\n$ make test\n",
    }
    for what, text in hidden.items():
        with pytest.raises(UnknownBlock):
            pytest.fail(f"{what}: {parse(README, text)}")


def test_text_blocks_hold_no_code():
    code = re.compile(r"^\s*(\$ |>>> |import |from \w+ import |def |class |@\w)", re.M)
    for path in documents():
        assert [block.where for block in blocks(path, "text") if code.search(block.text)] == []


def test_a_wrong_switch_or_program_in_a_sample_fails():
    for line in ("django-admin queue_consumer --thread-count 4", "python manage.py queue_run", "frobnicate now"):
        with pytest.raises((AssertionError, SystemExit)):
            document_commands.check(line)


def test_samples_are_found():
    assert {"python", "console"} <= {block.language for block in blocks(README)}
    assert [path.name for path in documents()][:2] == ["README.rst", "CHANGELOG.rst"]


def test_the_readme_is_plain_rst():
    settings = {"report_level": 1, "halt_level": 2, "file_insertion_enabled": False}
    docutils.core.publish_doctree(README.read_text(), settings_overrides=settings)
    assert not re.search(r":\w+:`", README.read_text())


def test_the_links_of_the_readme_lead_somewhere():
    links = set(re.findall(r"\bdocs/[\w/-]+\.rst\b", README.read_text()))
    assert len(links) > 10
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_changelog_has_this_version():
    docutils.core.publish_doctree((ROOT / "CHANGELOG.rst").read_text(), settings_overrides={"halt_level": 2})
    assert re.search(rf"^{re.escape(djqueue.__version__)} ", (ROOT / "CHANGELOG.rst").read_text(), re.M)
