"""An app of its own: the consumers that have it write into the ledger when they begin and stop to serve."""
