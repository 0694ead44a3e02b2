"""The path under which stored pickles name :func:`read_reference`. Import it from :mod:`djqueue.messages.codecs`."""

from djqueue.messages.codecs import read_reference

__all__ = ["read_reference"]
