"""A command of a site of its own: not every backend can do batches."""

import time
from pathlib import Path

from djqueue import BatchCommand
from tests.app.commands import write_down


class Handled(BatchCommand):
    """As `hold`, in batches; what it does when, it writes down."""

    batch_size = 2
    options = {"idle_timeout": 600}

    def start(self):
        write_down("started")

    def perform(self, *release_files):
        write_down(f"{len(release_files)} began")
        while not all(Path(release_file).exists() for release_file in release_files):
            time.sleep(0.005)
        write_down(f"{len(release_files)} ended")

    def stop(self):
        write_down("stopped")
