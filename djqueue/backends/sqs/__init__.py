"""The SQS backend: Amazon's queues, and what speaks their protocol."""

from djqueue.backends.sqs.queue import SqsQueue

__all__ = ["SqsQueue"]
