"""The pages of the dashboard: they show what :mod:`djqueue.operations` reports, and do what it can do."""
