"""What programs share that measure in their own process: what a message costs here and in the server of its queue."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles


def set_up(settings: str = "tests.benchmarks.settings"):
    """Set Django up, with the tables of the queue; the default queue."""
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    import django  # here, as who measures without it need not have it
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from djqueue import queues

    return queues["default"]


def cost(count: int, function: Callable[[], object]) -> dict[str, float]:
    """Of each message: how many in a second, microseconds of processor, and context switches."""
    began, used, switches = time.perf_counter(), time.process_time(), _switches()
    function()
    return {
        "rate": count / (time.perf_counter() - began),
        "cpu": (time.process_time() - used) / count * 1e6,
        "switches": (_switches() - switches) / count,
    }


def _switches() -> int:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_nvcsw + usage.ru_nivcsw


# ---- The server


def server_pid(queue) -> int | None:
    """The process, or the thread, that serves a queue; None if there is none apart from this one."""
    from django.db import connections

    if not queue.database:
        link = getattr(queue, "_link", None)  # none in memory
        return link and link.client.info("server")["process_id"]
    connection = connections[queue.database]
    connection.ensure_connection()
    if connection.vendor == "postgresql":
        return connection.connection.info.backend_pid
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT tid FROM information_schema.processlist WHERE id = connection_id()")
            return cursor.fetchone()[0]
    return None


def cpu_of(pid: int | str | None) -> float:
    """Microseconds of processor that a process has taken so far; 0 if there is none."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1000 if pid else 0.0


# ---- Figures


def ends(found: list[float]) -> dict[str, float]:
    return {"median": median(found), "least": min(found), "most": max(found)}


def percentiles(taken: list[float]) -> dict[str, float]:
    cuts = quantiles(taken, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "count": len(taken)}
