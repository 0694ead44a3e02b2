"""The Redis backend. Its queues are named by :mod:`djqueue.backends.redis_backend`."""

try:
    import redis  # noqa: F401
except ImportError as error:
    raise ImportError("The Redis backend needs the package redis: pip install 'django-djqueue[redis]'.") from error
