"""The Redis backend. Its queues are named by :mod:`djqueue.backends.redis_backend`."""
