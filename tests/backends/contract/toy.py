"""A third party's queue: the four verbs, and nothing else."""

from collections import deque

from djqueue.backends.base import BaseQueue


class ToyQueue(BaseQueue):
    """A queue over a deque. Its connection is a dictionary of them by name, so that the failed queue is a queue too."""

    def __init__(self, name, connection=None):
        super().__init__(name, {} if connection is None else connection)
        self.texts = self.connection.setdefault(name, deque())

    def write(self, data):
        self.texts.append(data)

    def read(self):
        try:
            return self.texts.popleft()
        except IndexError:
            return None

    def flush(self):
        self.texts.clear()

    def __len__(self):
        return len(self.texts)
