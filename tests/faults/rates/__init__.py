"""An app of its own: throttled commands, whose starts the ledger has."""
