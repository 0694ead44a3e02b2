"""What the CONNECTION of a Redis queue says: one server, the nodes of a cluster, or the Sentinels of a primary."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redis.connection import SSLConnection, parse_url

from djqueue.exceptions import InvalidQueueError
from djqueue.utils import nearest

FORMS = 'give "host:port:db", or a redis://, rediss://, unix://, redis+cluster:// or redis+sentinel:// URL'
_FORM = {
    "redis": "redis://host:port/0",
    "rediss": "rediss://host:port/0",
    "unix": "unix:///path/to/redis.sock",
    "redis+cluster": "redis+cluster://host:port,host:port",
    "rediss+cluster": "rediss+cluster://host:port,host:port",
    "redis+sentinel": "redis+sentinel://host:port,host:port/service/0",
    "rediss+sentinel": "rediss+sentinel://host:port,host:port/service/0",
}
_PORTS = {"cluster": 6379, "sentinel": 26379}
_PLAIN = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+)(:(?P<port>\d{1,5}))?(:(?P<db>\d{1,5}))?")
_QUERY = frozenset(
    "db username password client_name protocol max_connections socket_timeout socket_connect_timeout socket_keepalive"
    " health_check_interval ssl_ca_certs ssl_ca_path ssl_certfile ssl_keyfile ssl_password ssl_cert_reqs"
    " ssl_check_hostname ssl_min_version".split()
)
"""The allowed options in the query of a URL; none that lets the client repeat commands or decode replies."""
_OF_KIND = {
    "unix": _QUERY - {"socket_keepalive", "socket_connect_timeout"},
    "cluster": _QUERY - {"db", "health_check_interval", "ssl_min_version"},  # which redis-py drops without a word
    "sentinel": _QUERY | {"sentinel_username", "sentinel_password"},
}


@dataclass(frozen=True)
class Several:
    """What the URL of a cluster or of Sentinels says."""

    hosts: list[tuple[str, int]]
    options: dict[str, Any]
    """Of a connection, as redis-py takes them; those that begin with ``sentinel_`` are of one with a Sentinel."""
    service: str = ""
    """The name by which Sentinels know the primary; "" for a cluster."""


def url_of(connection: str | None) -> str:
    """The URL that a CONNECTION means; "" means localhost:6379:0. Raises InvalidQueueError, without a password."""
    text = connection or "localhost"
    if "://" in text:
        scheme = text.partition("://")[0]
        if scheme not in _FORM:
            raise invalid(f"a URL with the scheme {scheme!r}", FORMS)
        several(text) if "+" in scheme else _check(text, scheme)
        return text
    found = _PLAIN.fullmatch(text)
    if not found or not 0 < int(found["port"] or 6379) < 2**16:
        raise invalid(_masked(text), FORMS)
    return f"redis://{found['host']}:{found['port'] or 6379}/{found['db'] or 0}"


def several(url: str) -> Several:
    """What a redis+cluster:// or redis+sentinel:// URL says. Raises InvalidQueueError, without a password."""
    scheme, _, rest = url.partition("://")
    plain, _, kind = scheme.partition("+")
    place, mark, query = rest.partition("?")
    where, _, path = place.partition("/")
    login, at, hosts = where.rpartition("@")
    service, _, db = path.partition("/") if kind == "sentinel" else ("", "", path)
    each = [_check(f"{plain}://{login}{at}{host}/{db}{mark}{query}", scheme) for host in hosts.split(",")]
    if kind == "cluster" and any(options.pop("db", 0) for options in each):
        raise invalid(f"a {scheme}:// URL with a database", "leave it out, as a cluster has only number 0")
    if kind == "sentinel" and not re.fullmatch(r"[\w.:-]+", service):
        raise invalid(f"a {scheme}:// URL without the name of a service", f"give {_FORM[scheme]}")
    found = [(options.pop("host"), options.pop("port", _PORTS[kind])) for options in each]
    return Several(found, each[0], service)


def _check(url: str, scheme: str) -> dict[str, Any]:
    """What redis-py makes of the URL of one server; ``scheme`` is the one that was given."""
    try:
        parts, query = urlsplit(url), parse_qs(urlsplit(url).query, keep_blank_values=True)
        options = dict(parse_url(url))
        host = parts.hostname
        if "@" in parts.query:
            raise ValueError("half of a password")
    except ValueError:  # its text may quote the password
        hint = "write '/', '?', '#' and '@' in a password as %2F, %3F, %23 and %40"
        raise invalid(f"a {scheme}:// URL that cannot be read", hint) from None
    known = _OF_KIND.get(scheme.rpartition("+")[2], _QUERY)
    for name in query.keys() - known:
        meant = nearest(name, known)
        hint = f"did you mean {meant!r}?" if meant else f"there are {', '.join(sorted(known))}"
        raise invalid(f"a URL with the option {name!r}", hint)
    if not int(query.get("max_connections", ["2"])[0]) > 1:
        raise invalid("a URL with max_connections=1", "give max_connections=2 or more, as a consumer waits on one")
    if parts.fragment:
        raise invalid(f"a {scheme}:// URL with a '#'", "write '#' in a password as %23")
    if scheme == "unix" and not parts.path:
        raise invalid("a unix:// URL without a path", f"give {_FORM[scheme]}")
    if scheme != "unix" and not (host and re.fullmatch(r"/?\d*", parts.path)):
        raise invalid(f"a {scheme}:// URL whose host or database cannot be read", f"give {_FORM[scheme]}")
    return options | ({"ssl": True} if options.pop("connection_class", None) is SSLConnection else {})


def _masked(text: str) -> str:
    """What was given, without what may be a password."""
    host, *numbers = text.split(":")
    shown = [part if place < 2 and part.isdigit() and len(part) <= 5 else "***" for place, part in enumerate(numbers)]
    return "" if "@" in text else repr(":".join([host, *shown]))


def invalid(what: str, hint: str) -> InvalidQueueError:
    return InvalidQueueError(f"CONNECTION of a Redis queue is {what or 'not one'}: {hint}.")
