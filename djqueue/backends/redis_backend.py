"""The path of the Redis queues in ``QUEUES[…]["CLASS"]``. They live in :mod:`djqueue.backends.redis.queue`."""

from djqueue.backends.redis.queue import RedisBlockingQueue, RedisQueue

__all__ = ["RedisBlockingQueue", "RedisQueue"]
