"""What operators ask and do, in Python: the management commands are views of it."""
