"""System checks: what is wrong with the settings and the commands of a project, said before anything runs.

:data:`~djqueue.checks.catalogue.CATALOGUE` has every id with its words. Importing this package registers them all.
"""

from djqueue.checks import declared, deployment, queues, servers, throttles, values

__all__ = ["declared", "deployment", "queues", "servers", "throttles", "values"]
