"""The metrics for Prometheus: what its own parsers read, what the view tells of queues, what the option refuses."""

import json
import re
import socket
from contextlib import suppress
from urllib.request import Request, urlopen

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from django.test import RequestFactory
from prometheus_client import parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from djqueue import Consumer, queue_command, queues
from djqueue.consumer.counters import Counts, Durations, Totals
from djqueue.integrations.prometheus import ConsumerCollector, HeartbeatCollector, QueueCollector, queue_metrics, serve
from djqueue.management.commands import queue_consumer
from djqueue.testing import eventually
from tests.app.commands import note
from tests.support.consumer import only, serving, unreachable
from tests.support.documents import ROOT
from tests.support.redis_servers import free_port

NAMES = re.compile(r"djqueue_\w+")
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@queue_command
def work():
    pass


def counted():
    ran = Durations()
    ran.add([0.001, 0.2, 7200.0])
    commands = {("default", 'a."b\\\n'): Counts({"done": 2, "failed": 1}, ran, ran), ("mail", "a.c"): Counts()}
    return Totals(commands, {"threads": 4, "running": 1})


@pytest.fixture
def address():
    server, thread = serve("127.0.0.1", 0, counted)
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    server.server_close()
    thread.join(30)


LABELS = "queue", "consumer", "command", "state", "outcome", "le"


def samples(families):
    """Values by the name of the sample and its labels, in this order."""
    found = [one for family in families for one in family.samples]
    return {(one.name, *(one.labels[name] for name in LABELS if name in one.labels)): one.value for one in found}


def metrics_at(address, read=parser.text_string_to_metric_families, accept="text/plain"):
    with urlopen(Request(address, headers={"Accept": accept}), timeout=30) as answer:
        return [one for one in read(answer.read().decode()) if one.name.startswith("djqueue")]


class TestConsumer:
    @pytest.mark.parametrize(
        "read, accept",
        [(parser.text_string_to_metric_families, "text/plain"), (read_openmetrics, OPENMETRICS)],
    )
    def test_the_parsers_of_prometheus_read_what_it_answers(self, address, read, accept):
        families = metrics_at(address, read, accept)
        found = samples(families)
        assert found["djqueue_attempts_total", "default", 'a."b\\\n', "done"] == 2
        assert found["djqueue_attempts_total", "mail", "a.c", "failed"] == 0
        assert found["djqueue_run_seconds_count", "default", 'a."b\\\n'] == 3
        assert found["djqueue_run_seconds_bucket", "default", 'a."b\\\n', "0.25"] == 2
        assert (found["djqueue_consumer_threads",], found["djqueue_consumer_running",]) == (4, 1)
        assert ("djqueue_run_seconds_count", "mail", "a.c") not in found, "it has not run"
        assert all(one.documentation and one.type != "unknown" for one in families)

    def test_metrics_of_the_project_are_beside_them(self, address):
        with urlopen(address, timeout=30) as answer:
            assert b"python_info" in answer.read()

    @pytest.mark.backends("sqlite")
    def test_what_this_process_enqueues_is_counted_once_it_is_committed(self, queue, address):
        key = "djqueue_enqueued_total", "default", work.name
        before = samples(metrics_at(address)).get(key, 0)
        with transaction.atomic():
            work()
            transaction.set_rollback(True)
        with transaction.atomic():
            work()
        assert samples(metrics_at(address))[key] == before + 1

    @pytest.mark.backends("redis")
    def test_several_processes_are_counted_together(self, site):
        note.enqueue_many([(str(number),) for number in range(40)])
        port = free_port()
        site.consumer("--processes", "2", "--metrics", str(port))

        def found():
            with suppress(OSError):
                return samples(metrics_at(f"http://127.0.0.1:{port}/metrics"))

        done = "djqueue_attempts_total", "default", note.name, "done"
        eventually(lambda: (found() or {}).get(done) == 40, 60)
        eventually(lambda: found()["djqueue_consumer_processes",] == 2, 60)

    @pytest.mark.parametrize("port", ["x", "0", "70000", "localhost:", ""])
    def test_what_is_no_port_is_refused(self, port):
        with pytest.raises(CommandError, match="as 9200, or an address and a port"):
            call_command("queue_consumer", f"--metrics={port}")

    def test_a_port_that_is_taken_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(CommandError, match=f"--metrics: 127.0.0.1 port {port} cannot be had: .*in use"):
                queue_consumer._serve_metrics(("127.0.0.1", port), Totals)


class TestQueues:
    def asked(self):
        answer = queue_metrics(RequestFactory().get("/metrics"))
        return samples(parser.text_string_to_metric_families(answer.content.decode()))

    @pytest.mark.backends("redis", "sqlite")
    def test_what_is_in_the_queues_is_asked_of_their_stores(self, queue):
        with only(work):
            work.enqueue_many([()] * 3)
            work.using(delay=600).enqueue()
            Consumer(periodic=False).run(limit=1)
            found = self.asked()
        states = {state: found["djqueue_queue_messages", "default", state] for state in ("ready", "delayed", "failed")}
        assert states == {"ready": 2, "delayed": 1, "failed": 0}
        assert found["djqueue_queue_completed_total", "default"] == 1
        assert 0 < found["djqueue_queue_oldest_seconds", "default"] < 60
        assert found["djqueue_queue_up", "default"] == 1

    @pytest.mark.backends("redis", "sqlite", "memory")
    def test_which_consumers_serve_them(self, queue):
        assert self.asked()["djqueue_queue_consumers", "default"] == 0
        with serving() as running:
            eventually(lambda: self.asked()["djqueue_queue_consumers", "default"] == 1)
            assert 0 <= self.asked()["djqueue_consumer_heartbeat_age_seconds", running.consumer.name] < 60

    @pytest.mark.backends("memory")
    def test_a_queue_that_cannot_be_asked_hides_no_other(self, backend, settings, monkeypatch):
        settings.QUEUES = backend.queues("default", "mail")
        monkeypatch.setattr(queues["mail"], "stats", unreachable)
        found = self.asked()
        assert (found["djqueue_queue_up", "default"], found["djqueue_queue_up", "mail"]) == (1, 0)
        assert ("djqueue_queue_oldest_seconds", "mail") not in found


@pytest.mark.backends("memory")
def test_the_dashboard_asks_for_metrics_that_there_are(queue):
    text = (ROOT / "docs" / "howto" / "grafana-dashboard.json").read_text()
    expressions = [one["expr"] for panel in json.loads(text)["panels"] for one in panel["targets"]]
    asked = {name for one in expressions for name in NAMES.findall(one)}
    collectors = [ConsumerCollector(counted), *(kind([queue]) for kind in (QueueCollector, HeartbeatCollector))]
    families = [family for one in collectors for family in one.collect()]
    told = {one.name for family in families for one in (family, *family.samples)}
    assert asked <= told and len(asked) > 8
