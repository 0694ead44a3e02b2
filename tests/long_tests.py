"""The tests that take longer than ten seconds on each push, with their reasons: tests/support/durations.py holds it.

A test that waits for what takes so long in earnest belongs here; one that merely does much belongs into
`make test-all`, or is made smaller.
"""

LONG: dict[str, dict[str, str]] = {}
"""File below tests/, test, reason."""
