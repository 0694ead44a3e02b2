"""The SQS backend: Amazon's queues, and servers with the same protocol."""

try:
    import boto3  # noqa: F401
except ImportError as error:
    raise ImportError("The SQS backend needs the package boto3: pip install 'django-djqueue[sqs]'.") from error

from djqueue.backends.sqs.queue import SqsQueue

__all__ = ["SqsQueue"]
