"""Wagtail on djqueue: what it enqueues by Django's tasks is run by `queue_consumer`, on SQLite and on Redis.

`python -m tests.tasks.third_party.site`, where Wagtail is installed. Wagtail itself is as it comes from PyPI.
"""

import io
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from djqueue.messages.failures import errors_of
from tests.support import servers

HERE = "tests.tasks.third_party"
STORES = ("database", "redis")
CASES = ("none", "retried", "ordered", "once")
"""The options of Wagtail's tasks: see settings.OPTIONS."""
THREADS = "4"
PATIENCE = 60.0
"""Seconds for all tasks of a step."""
SAVES = 4
"""How many cards are saved at once: Wagtail enqueues three equal tasks for each."""


def main():
    servers.start("redis")
    for store in STORES:
        with tempfile.TemporaryDirectory() as folder:
            site = {"WAGTAIL_QUEUE": store, "WAGTAIL_FOLDER": folder}
            step("try", **site)
            for case in CASES:
                step("admin", **site, WAGTAIL_OPTIONS=case)


def step(name: str, **env: str):
    """A part of it in a process of its own, which has the settings for it."""
    env = {**os.environ, **env, "DJANGO_SETTINGS_MODULE": f"{HERE}.settings"}
    subprocess.run([sys.executable, "-m", f"{HERE}.site", name], env=env, check=True)


def try_it():
    """Make a picture and a card with it, delete the picture, and see that Wagtail's tasks did their part."""
    from django.core.management import call_command

    from djqueue import queues

    call_command("migrate", run_syncdb=True, verbosity=0)
    call_command("check", fail_level="WARNING")
    picture, card = make()
    assert not referrers(picture), "the index of references is the work of a task"
    enqueued = work()
    assert referrers(picture) == [card], "Wagtail's index of references does not know the card"
    path = picture.file.path
    picture.delete()
    assert os.path.exists(path), "to delete the file is the work of a task"
    enqueued += work()
    assert queues["default"].stats().failed == 0
    assert not os.path.exists(path), "the file of the picture is still there"
    report(f"{enqueued} tasks")


def try_the_admin():
    """Save cards in Wagtail's admin, where its tasks are run by four threads, two of which meet in its search index.

    Without options a task fails for good. With retry_on none does, and with shard they never meet.
    """
    from djqueue import queues

    case, failed = os.environ["WAGTAIL_OPTIONS"], queues["default"].failed
    mark = Path(os.environ["WAGTAIL_FOLDER"], f"{case}.met")
    picture, _ = make()
    work()
    cards = save_cards(picture, 1)
    enqueued = work(lock_step=mark)
    assert mark.exists() is (case in ("none", "retried")), "whether two threads wrote the same at the same time"
    wrong = [errors_of(record.entry.errors)[-1]["exception"] for record in failed.peek("ready", 100)]
    assert {*wrong} == ({"django.db.utils.IntegrityError"} if case == "none" else set()), wrong
    failed.flush()
    cards += save_cards(picture, SAVES)
    enqueued += work()
    count = len(failed)
    assert case == "none" or not count, failed.peek("ready", 100)
    failed.flush()
    assert {card.pk for card in referrers(picture)} >= {card.pk for card in cards}, "the index does not know a card"
    assert all(card.index_entries.exists() for card in cards), "a card cannot be found"
    report(f"{case}: {enqueued} tasks, {len(wrong)} failed of those in lock step, {count} of the others")


def save_cards(picture, count: int) -> list:
    """Save new cards with a picture, as an editor does in the browser."""
    from django.contrib.auth import get_user_model
    from django.test import Client

    from tests.tasks.third_party.models import Card

    editor, _ = get_user_model().objects.get_or_create(username="editor", is_superuser=True, is_staff=True)
    client = Client()
    client.force_login(editor)
    before = {*Card.objects.values_list("pk", flat=True)}
    for number in range(count):
        form = {"title": f"Card {number}", "picture": picture.pk, "action-publish": "1"}
        answer = client.post("/admin/snippets/third_party/card/add/", form)
        assert answer.status_code == 302, answer.content.decode()
    made = list(Card.objects.exclude(pk__in=before))
    assert len(made) == count
    return made


def make():
    from django.core.files.images import ImageFile
    from PIL import Image as Drawing
    from wagtail.images.models import Image

    from tests.tasks.third_party.models import Card

    drawn = io.BytesIO()
    Drawing.new("RGB", (8, 8)).save(drawn, "PNG")
    picture = Image.objects.create(title="A picture", file=ImageFile(drawn, name="picture.png"))
    return picture, Card.objects.create(picture=picture)


def referrers(picture) -> list:
    """What uses a picture, as Wagtail's index of references has it."""
    from wagtail.models import ReferenceIndex

    found = ReferenceIndex.get_references_to(picture).group_by_source_object()
    return [source for source, _ in found]


def work(lock_step: Path | None = None) -> int:
    """Run what is due in another process, as on a server; how many tasks there were."""
    from djqueue import queues

    waiting = len(queues["default"])
    assert waiting, "Wagtail has enqueued nothing"
    env = {**os.environ, **({"WAGTAIL_LOCK_STEP": str(lock_step)} if lock_step else {})}
    command = [sys.executable, "-m", "django", "queue_consumer", "--drain", "--threads", THREADS]
    deadline = time.monotonic() + PATIENCE
    while len(queues["default"]):  # what is retried is due a moment later, for which --drain does not wait
        assert time.monotonic() < deadline, queues["default"].stats()
        subprocess.run(command, env=env, check=True)
    return waiting


def report(what: str):
    import django

    print(f"Wagtail {version('wagtail')}, Django {django.get_version()}, {os.environ['WAGTAIL_QUEUE']}: {what}")


STEPS = {"try": try_it, "admin": try_the_admin}

if __name__ == "__main__":
    if sys.argv[1:]:
        import django

        django.setup()
        STEPS[sys.argv[1]]()
    else:
        main()
