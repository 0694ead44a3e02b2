"""What can happen on a server, made certain: two threads of a consumer write into Wagtail's index at the same time.

The first INSERT waits for one of another thread, so that both tasks have seen an index without the reference. With
WAGTAIL_LOCK_STEP the file of that name is made once two have met; where none comes in time, the one goes on alone.
"""

import os
import threading
from pathlib import Path

from django.db.backends.signals import connection_created

INSERT = 'INSERT INTO "wagtailcore_referenceindex"'
PATIENCE = 3.0
"""Seconds to wait for another thread; a task takes a few milliseconds."""


def meet(barrier: threading.Barrier, mark: Path, execute, sql, params, many, context):
    if sql.startswith(INSERT) and not mark.exists():
        try:
            barrier.wait(PATIENCE)
            mark.touch()
        except threading.BrokenBarrierError:  # it is the only one
            barrier.reset()
    return execute(sql, params, many, context)


def install():
    mark = os.environ.get("WAGTAIL_LOCK_STEP")
    if mark is None:
        return
    barrier, file = threading.Barrier(2), Path(mark)

    def wrap(connection, **kwargs):
        connection.execute_wrappers.append(lambda *given: meet(barrier, file, *given))

    connection_created.connect(wrap, weak=False)
