"""The pages of the dashboard: they show what :mod:`djqueue.operations` tells, and do what it can do."""
