"""A visitor of the site: a browser without a face, over HTTP."""

import json
import mimetypes
import secrets
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener

PATIENCE = 30.0


class Visitor:
    """Follows links and sends forms. Raises urllib's HTTPError for every answer that is an error."""

    def __init__(self, site: str):
        self.site = site.rstrip("/")
        self._cookies = CookieJar()
        self._opener = build_opener(HTTPCookieProcessor(self._cookies))

    def get(self, path: str) -> bytes:
        return self._open(path)

    def json(self, path: str) -> dict:
        return json.loads(self._open(path))

    def post(self, path: str, **fields: str) -> bytes:
        """Open the page with the form, as people do, then send it."""
        return self._open(path, urlencode(fields | self._token(path)).encode())

    def upload(self, path: str, name: str, file: Path, **fields: str) -> bytes:
        """Send a form with a file."""
        body, content_type = multipart(fields | self._token(path), name, file)
        return self._open(path, body, {"Content-Type": content_type})

    def log_in(self, username: str, password: str) -> None:
        """Raises PermissionError if the site does not let us in."""
        self.post("/login/", username=username, password=password)
        if "sessionid" not in {cookie.name for cookie in self._cookies}:
            raise PermissionError(f"The site does not let {username} in.")

    def _token(self, path: str) -> dict[str, str]:
        self._open(path)
        token = next(cookie.value for cookie in self._cookies if cookie.name == "csrftoken")
        return {"csrfmiddlewaretoken": token}

    def _open(self, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
        request = Request(self.site + path, body, {"Referer": self.site + path, **(headers or {})})
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                return answer.read()
        except HTTPError as error:
            error.add_note(f"{request.get_method()} {path}")
            raise


def multipart(fields: dict[str, str], name: str, file: Path) -> tuple[bytes, str]:
    """A form with a file as browsers send it: the body and its content type."""
    border = secrets.token_hex(16)
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    start = f"--{border}\r\nContent-Disposition: form-data; name="
    parts = [f'{start}"{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()]
    head = f'{start}"{name}"; filename="{file.name}"\r\nContent-Type: {kind}\r\n\r\n'
    body = "".join([*parts, head]).encode() + file.read_bytes() + f"\r\n--{border}--\r\n".encode()
    return body, f"multipart/form-data; boundary={border}"
