"""What can happen on a server, made certain: two threads of a consumer write the same into Wagtail's search index.

The first that has read what the index has waits for another thread to read it too, so that neither sees the other's
entry. With WAGTAIL_LOCK_STEP the file of that name is made once two have met; where none comes in time, one goes on.
"""

import os
import threading
from pathlib import Path

from django.db.backends.signals import connection_created

READ = 'SELECT "wagtailsearch_indexentry"'
PATIENCE = 2.0
"""Seconds to wait for another thread; a task takes a few milliseconds."""


def meet(barrier: threading.Barrier, mark: Path, execute, sql, params, many, context):
    answer = execute(sql, params, many, context)
    if sql.startswith(READ) and not mark.exists():
        try:
            barrier.wait(PATIENCE)
            mark.touch()
        except threading.BrokenBarrierError:  # it is the only one
            barrier.reset()
    return answer


def install():
    mark = os.environ.get("WAGTAIL_LOCK_STEP")
    if mark is None:
        return
    barrier, file = threading.Barrier(2), Path(mark)

    def wrap(connection, **kwargs):
        connection.execute_wrappers.append(lambda *given: meet(barrier, file, *given))

    connection_created.connect(wrap, weak=False)
