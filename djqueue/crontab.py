"""The path under which stored pickles name :class:`Crontab`. Import it from :mod:`djqueue.scheduling.crontab`."""

from djqueue.scheduling.crontab import Crontab

__all__ = ["Crontab"]
