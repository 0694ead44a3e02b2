"""The example site with its consumer: python example_project/demo.py [--once] [--trouble] [--photos DIR]"""

import argparse
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPException
from pathlib import Path

import django
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.urls import reverse

from config import servers
from processes import running
from visitor import Visitor

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"
USER = {"username": "demo", "email": "demo@example.com"}
PASSWORD = os.environ.get("DEMO_PASSWORD") or ("" if os.environ.get("DEMO_HOSTS") else "demo")
"""Simple, as only this machine reaches the site; where it answers to other names the password is left as it is."""
GRACE = 5
ANSWERS_WITHIN = 30.0
ENVIRONMENT = ("DEMO_QUEUE", "DEMO_DATA", "DEMO_NAME")


def main() -> int:
    options = parser().parse_args()
    if options.photos and not options.photos.is_dir():
        print(f"--photos: {options.photos} is not a folder.", file=sys.stderr)
        return 2
    try:
        return run(options)
    except (ImproperlyConfigured, servers.Unreachable) as error:
        print(error, file=sys.stderr)
        return 2


def run(options: argparse.Namespace) -> int:
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signum, stop)
    set_up(fresh=options.once)
    return once(options) if options.once else demo(options)


def parser() -> argparse.ArgumentParser:
    main = argparse.ArgumentParser(description=__doc__)
    main.add_argument("--once", action="store_true", help="a batch of pictures and comments, counted")
    main.add_argument("--trouble", action="store_true", help="with load, failures and a consumer that is killed")
    main.add_argument("--photos", type=Path, metavar="DIR", help="pictures to put in (default: a few of our own)")
    main.add_argument("--port", type=int, default=8000, help="another one if it is taken (default: %(default)s)")
    return main


def stop(*_):
    """The with blocks end what they began; a second Ctrl-C does not disturb them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise SystemExit(0)


def set_up(fresh: bool):
    """Django over the place that the environment names; fresh: over one of its own, emptied."""
    address, data = os.environ.get("DEMO_QUEUE", ""), Path(os.environ.get("DEMO_DATA") or HERE / "var")
    if fresh:
        os.environ |= {"DEMO_NAME": os.environ.get("DEMO_NAME") or "gallery_once", "DEMO_DATA": str(data / "once")}
        shutil.rmtree(data / "once", ignore_errors=True)
        servers.drop(address, os.environ["DEMO_NAME"])
    servers.make(address, os.environ.get("DEMO_NAME", ""))
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    django.setup()
    call_command("migrate", verbosity=0)


def demo(options: argparse.Namespace) -> int:
    """Site and consumer, and trouble if it is wanted, until Ctrl-C."""
    from gallery.models import Photo

    make_user(PASSWORD)
    with site(options.port) as (site_process, address):
        if options.photos or not Photo.objects.exists():
            call_command("load_photos", options.photos or PICTURES, owner=USER["username"])
        welcome(address)
        with ExitStack() as others:
            started = {"site": site_process, "consumer": others.enter_context(consumer())}
            if options.trouble:
                started["make_trouble"] = others.enter_context(running("make_trouble", "--keep"))
            return watch(started)


def once(options: argparse.Namespace) -> int:
    """A batch through a fresh site, counted; 1 if anything is missing."""
    from gallery import batch

    password = PASSWORD or secrets.token_urlsafe(9)
    make_user(password)
    with site(0) as (_, address):
        visitor = Visitor(address)
        visitor.log_in(USER["username"], password)
        comments = batch.bring(visitor, options.photos, PICTURES, USER["username"])
        batch.drain()
        missing = batch.report(visitor, comments)
    print("\n".join(f"MISSING: {what}" for what in missing) or f"All of it is there, in {data_dir()}", flush=True)
    return 1 if missing else 0


def make_user(password: str) -> None:
    """The user of the demo, with this password if there is one. A second demo on the same data changes nothing."""
    from django.contrib.auth import get_user_model

    users = get_user_model().objects
    user = users.filter(username=USER["username"]).first() or users.create_superuser(**USER)
    if password and not user.check_password(password):
        user.set_password(password)
        user.save()


@contextmanager
def site(port: int) -> Iterator[tuple[subprocess.Popen, str]]:
    """The site in a process of its own, once it answers, and its address."""
    port = free_port(port)
    with running("runserver", "--noreload", str(port), log=data_dir() / "site.log") as process:
        address = f"http://127.0.0.1:{port}"
        wait_until_it_answers(process, Visitor(address))
        yield process, address


def consumer():
    return running("queue_consumer", "--threads", "8", "--grace", str(GRACE))


def free_port(wanted: int) -> int:
    """The wanted port, or any that is free."""
    for port in (wanted, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise SystemExit("No port is free.")


def wait_until_it_answers(process: subprocess.Popen, visitor: Visitor):
    deadline = time.monotonic() + ANSWERS_WITHIN
    while process.poll() is None and time.monotonic() < deadline:
        try:
            visitor.get("/health/")
        except (OSError, HTTPException):
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"The site did not start:\n{(data_dir() / 'site.log').read_text()[-2000:]}")


def welcome(address: str):
    lines = [
        f"The gallery:  {address}/",
        f"Try it:       {address}/try/",
        f"Dashboard:    {address}{reverse('admin:djqueue_dashboard_changelist')}",
        f"Log in:       {USER['username']}, password {PASSWORD or '(set DEMO_PASSWORD)'}",
        f"Data:         {shown(data_dir())} (the site's log, e-mails, digests, media)",
        "",
        "In another terminal:",
        *(f"  {manage_command(words)}" for words in ("queue_stats", "queue_errors list", "make_trouble --keep")),
        "",
        "Ctrl-C stops the site and the consumer. The log of the consumer follows.",
    ]
    print("", *(f"    {line}".rstrip() for line in lines), "", sep="\n", flush=True)


def manage_command(words: str) -> str:
    """What to type for a management command: with the Python and the environment of this demo."""
    given = [f"{name}={shlex.quote(os.environ[name])}" for name in ENVIRONMENT if os.environ.get(name)]
    return " ".join([*given, shown(Path(sys.executable)), shown(HERE / "manage.py"), words])


def shown(path: Path) -> str:
    """A path as it is typed in this folder."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def watch(processes: dict[str, subprocess.Popen]) -> int:
    """Wait until one of them ends, which it should not."""
    while True:
        for name, process in processes.items():
            if process.poll() is not None:
                print(f"The {name} ended with code {process.returncode}; stopping.", file=sys.stderr)
                return 1
        time.sleep(0.3)


def data_dir() -> Path:
    from django.conf import settings

    return settings.DATA_DIR


if __name__ == "__main__":
    sys.exit(main())
