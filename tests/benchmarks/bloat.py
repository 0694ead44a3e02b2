"""What an old snapshot costs on PostgreSQL: a transaction that stays open while many messages pass.

    python tests/benchmarks/bloat.py [--count N]

One connection claims and completes; beside it a backup, or a report, keeps a REPEATABLE READ transaction open, so that
no vacuum may remove what was completed since. For each tenth of the messages: µs of CPU of client and server for one
message, with and without that transaction, and after its end and a vacuum.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support import servers  # noqa: E402  after the path is known

PARTS = 10


def work(count: int, server_url: str, holds: bool) -> list[float]:
    """µs of a message in each part; after the last one, once the transaction is over and the table was vacuumed."""
    import django
    import psycopg
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from djqueue import queues
    from tests.benchmarks.scaling import BATCH, Server, fill

    queue = queues["default"]
    fill(queue, 2 * BATCH)
    server, beside = Server(queue), psycopg.connect(server_url, autocommit=True)
    beside.execute("BEGIN ISOLATION LEVEL REPEATABLE READ" if holds else "SELECT 1")
    beside.execute("SELECT 1 FROM djqueue_message LIMIT 1")

    def part() -> int:
        done, claimed = 0, []
        while done < count // PARTS:
            if done % 2000 < BATCH:
                fill(queue, 2000)
            held, claimed = queue.exchange(claimed, BATCH, 60.0, "bench")
            done += len(held)
        queue.release(claimed)
        return done

    costs = [server.cost(part).cpu for _ in range(PARTS)]
    beside.close()
    psycopg.connect(server_url, autocommit=True).execute("VACUUM djqueue_message")
    return [round(cost, 1) for cost in (*costs, server.cost(part).cpu)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000, help="messages (default: %(default)s)")
    parser.add_argument("--holds", choices=("yes", "no"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.holds:
        print(json.dumps(work(options.count, os.environ["BENCH_CONNECTION"], options.holds == "yes")))
        return
    print(
        f"{'snapshot':10}"
        + "".join(f"{options.count * part // PARTS:>9,}" for part in range(1, PARTS + 1))
        + "   after"
    )
    for holds in ("no", "yes"):
        with servers.Postgres(servers.run_dir() / f"bloat-{holds}") as server:
            env = {"BENCH_BACKEND": "postgres", "BENCH_CONNECTION": server.url, "PYTHONPATH": str(ROOT)}
            env |= {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings"}
            command = [sys.executable, __file__, "--holds", holds, "--count", str(options.count)]
            output = subprocess.run(command, cwd=ROOT, env=os.environ | env, check=True, capture_output=True, text=True)
        print(f"{holds:10}" + "".join(f"{cost:>9,.1f}" for cost in json.loads(output.stdout)), flush=True)


if __name__ == "__main__":
    main()
