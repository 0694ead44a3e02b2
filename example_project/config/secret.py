"""A secret key of this installation, made when it is first asked for."""

import os
import secrets
import tempfile
from pathlib import Path


def secret_key(file: Path) -> str:
    """The key in the file. Site and consumer may ask at the same moment: the first that has one written wins."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent) as draft:  # readable by nobody else
            draft.write(secrets.token_urlsafe(50))
            draft.flush()
            _publish(draft.name, file)
    return file.read_text()


def _publish(draft: str, file: Path) -> None:
    try:
        os.link(draft, file)
    except FileExistsError:
        pass
