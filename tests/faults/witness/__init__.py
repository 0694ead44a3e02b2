"""An app of its own: only consumers that have it write into the ledger what became of its command."""
