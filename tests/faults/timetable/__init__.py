"""An app of its own, so that only those consumers have a schedule which are to keep it."""
