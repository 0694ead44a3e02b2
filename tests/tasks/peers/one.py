"""Run the conformance suite on one backend: `python -m tests.tasks.peers.one NAME`. The last line is the outcome."""

import json
import logging
import os
import sys
import tempfile
import unittest
from importlib.metadata import version

import django
from django.conf import settings
from django.utils.module_loading import import_string

import djqueue
from tests.tasks.peers.peers import PEERS, Peer

BACKPORT = django.VERSION < (6, 0)
NAMESPACE = "django_tasks" if BACKPORT else "django.tasks"


def main(name: str):
    peer = PEERS[name]
    folder = tempfile.mkdtemp(prefix="djq-peer-")
    settings.configure(
        SECRET_KEY="only-for-the-tests",
        USE_TZ=True,
        INSTALLED_APPS=["django.contrib.contenttypes", *peer.apps, *(["django_tasks"] if BACKPORT else [])],
        **{"DATABASES": {"default": sqlite(folder)}, **peer.settings()},
    )
    django.setup()
    logging.getLogger().addHandler(logging.NullHandler())
    print(json.dumps(outcome(peer)))


def sqlite(folder: str) -> dict:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": f"{folder}/db.sqlite3",
        "TEST": {"NAME": f"{folder}/test.sqlite3"},
        "OPTIONS": {"transaction_mode": "IMMEDIATE", "timeout": 20},
    }


def outcome(peer: Peer) -> dict:
    from django.test.runner import DiscoverRunner

    runner = DiscoverRunner(verbosity=0)
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case(peer))
    old = runner.setup_databases()
    result = unittest.TextTestRunner(sys.stderr, verbosity=int(os.environ.get("VERBOSE", "0"))).run(suite)
    runner.teardown_databases(old)
    broken = {method(test) for test, _ in [*result.failures, *result.errors]}
    skipped = {method(test) for test, _ in result.skipped}
    return {
        "backend": peer.name,
        "version": djqueue.__version__ if peer.package == "djqueue" else version(peer.package),
        "django": django.get_version(),
        "passed": result.testsRun - len(broken) - len(skipped - broken),
        "skipped": len(skipped - broken),
        "failed": sorted(broken),
    }


def method(test) -> str:
    """The name of a test, or of the test that a subTest is part of."""
    return getattr(test, "test_case", test)._testMethodName


def case(peer: Peer) -> type:
    from django.test import TransactionTestCase

    from djqueue.testing.conformance import TaskBackendConformance

    if peer.case:
        return import_string(peer.case)
    said = dict(peer.said)
    if module := said.pop("module", ""):
        said["backend"] = {"BACKEND": f"{NAMESPACE}.{module}.{peer.name}"}
    if run_due := peer.run_due:
        said["run_due"] = lambda self: run_due()
    return type("Conformance", (TaskBackendConformance, TransactionTestCase), said)


if __name__ == "__main__":
    main(*sys.argv[1:])
