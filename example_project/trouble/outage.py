"""Whether the services that the commands call are away: a file in the data folder says so to all processes."""

from django.conf import settings


def begin() -> None:
    settings.DATA_DIR.mkdir(parents=True, exist_ok=True)
    _file().touch()


def end() -> None:
    _file().unlink(missing_ok=True)


def check(service: str, request: str) -> None:
    """Raises ConnectionError while the services are away."""
    if _file().exists():
        raise ConnectionError(f"{service} does not answer: {request}.")


def _file():
    return settings.DATA_DIR / "services-are-away"
