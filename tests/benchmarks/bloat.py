"""What an old snapshot costs on PostgreSQL: a transaction that stays open while many messages pass.

    python -m tests.benchmarks.bloat [--count N]

One connection claims and completes; next to it a backup, or a report, keeps a REPEATABLE READ transaction open, so that
no vacuum may remove what was completed since. For each tenth of the messages: µs of CPU of client and server for one
message, with and without that transaction, and after its end and a vacuum.
"""

from __future__ import annotations

import argparse
import json
import os

from tests.benchmarks.measure import set_up
from tests.benchmarks.programs import Table, environment, output
from tests.support import servers

PARTS = 10


def work(count: int, server_url: str, holds: bool) -> list[float]:
    """µs of a message in each part; after the last one, once the transaction is over and the table was vacuumed."""
    import psycopg

    queue = set_up()
    from tests.benchmarks.scaling import BATCH, Server, fill

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
    parts = [f"{options.count * part // PARTS:,}" for part in range(1, PARTS + 1)]
    table = Table(("snapshot", "10"), *((part, ">9,.1f") for part in [*parts, "after"]))
    for holds in ("no", "yes"):
        with servers.Postgres(servers.run_dir() / f"bloat-{holds}") as server:
            env = environment("postgres", server.url)
            table.add(holds, *output("bloat", env, "--holds", holds, "--count", options.count))


if __name__ == "__main__":
    main()
