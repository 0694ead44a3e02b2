"""System checks: what is wrong with the settings and the commands of a project, said before anything runs.

:data:`~djqueue.checks.catalogue.CATALOGUE` has every id with its words. Importing this package registers them all.
"""

from djqueue.checks import declarations, queues, servers, settings

__all__ = ["declarations", "queues", "servers", "settings"]
