"""The contract suites: what a backend must do."""
