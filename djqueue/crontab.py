"""The path under which stored pickles name :class:`Crontab`. Import it from :mod:`djqueue.timetables`."""

from djqueue.timetables import Crontab, crontab

__all__ = ["Crontab", "crontab"]
