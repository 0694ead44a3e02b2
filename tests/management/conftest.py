import pytest

from djqueue.backends.memory import MemoryStore


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch):
    """Tables are as wide as they must be, and not coloured, unless a test says otherwise."""
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def nothing_counted(monkeypatch):
    """Of queues in memory, what other tests of this process have run is not known."""
    monkeypatch.setattr(MemoryStore, "_common", None)
