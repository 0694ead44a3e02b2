"""Wagtail on djqueue: what it enqueues by Django's tasks is run by `queue_consumer`, on SQLite and on Redis.

`python -m tests.tasks.third_party.site`, where Wagtail is installed. Wagtail itself is as it comes from PyPI.
"""

import io
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version

from tests.support import servers

HERE = "tests.tasks.third_party"
STORES = ("database", "redis")


def main():
    servers.start("redis")
    for store in STORES:
        with tempfile.TemporaryDirectory() as folder:
            env = {"WAGTAIL_QUEUE": store, "WAGTAIL_FOLDER": folder, "DJANGO_SETTINGS_MODULE": f"{HERE}.settings"}
            subprocess.run([sys.executable, "-m", f"{HERE}.site", "try"], env={**os.environ, **env}, check=True)


def try_it():
    """Make a picture and a card with it, delete the picture, and see that Wagtail's tasks did their part."""
    import django

    django.setup()
    from django.core.management import call_command

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
    assert not os.path.exists(path), "the file of the picture is still there"
    print(
        f"Wagtail {version('wagtail')}, Django {django.get_version()}, {os.environ['WAGTAIL_QUEUE']}: {enqueued} tasks"
    )


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


def work() -> int:
    """Run what is due in another process, as on a server; how many tasks there were."""
    from djqueue import queues

    waiting = len(queues["default"])
    assert waiting, "Wagtail has enqueued nothing"
    subprocess.run([sys.executable, "-m", "django", "queue_consumer", "--drain"], check=True)
    stats = queues["default"].stats()
    assert (len(queues["default"]), stats.failed) == (0, 0), stats
    return waiting


if __name__ == "__main__":
    try_it() if sys.argv[1:] == ["try"] else main()
