"""The commands of the test app, found by autodiscovery."""
