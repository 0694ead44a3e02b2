import pytest


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    """Tables are as wide as they must be, and not coloured, unless a test says otherwise."""
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
