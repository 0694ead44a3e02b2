"""The memory backend: a queue and a store inside this process."""

from djqueue.backends.memory.queue import MemoryQueue
from djqueue.backends.memory.store import MemoryStore

__all__ = ["MemoryQueue", "MemoryStore"]
