"""Another path of :data:`djqueue.queues`. Import it from :mod:`djqueue`."""

from djqueue.wiring import queues

__all__ = ["queues"]
