"""Options of commands, and what follows from them: where a call waits, what an exception leads to."""
