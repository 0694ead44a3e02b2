"""The contract suites: what a backend has to keep."""
