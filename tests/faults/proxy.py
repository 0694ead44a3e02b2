"""A proxy in front of a server: answers get lost, and the connection with them.

It knows nothing of what passes but that an answer follows each request, which Redis, PostgreSQL and MariaDB have in
common. Whoever speaks through it is told its address; who speaks to the server itself sees none of this.
"""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf

from tests.support.processes import until

QUIET = 0.05
"""Seconds without another byte after which an answer is taken to be whole: the server has done what it was asked."""
CHUNK = 2**16

Address = str | tuple[str, int]
"""The path of a Unix socket, or host and port."""


@dataclass
class Fault:
    """What happens to requests that contain all of the texts, with a chance, so often at most."""

    texts: tuple[bytes, ...] = ()
    chance: float = 1.0
    most: float = inf
    when: Callable[[], object] = lambda: True
    met: int = 0
    """To how many it happened."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def meets(self) -> bool:
        """Of a request that has its texts, by chance."""
        with self._lock:
            hit = self.met < self.most and random.random() < self.chance
            self.met += hit
        return hit


class Proxy:
    """Serves on a free port of the loopback address until it is closed; every connection has one to the server."""

    def __init__(self, server: Address):
        self.server = server
        self.losses: list[Fault] = []
        self.forgets_after = inf
        """Seconds without a byte after which a connection is forgotten: what comes by it is acknowledged and lost."""
        self._passages: set[Passage] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    @contextmanager
    def losing(self, *texts: bytes, chance=1.0, most=inf, when: Callable[[], object] = lambda: True) -> Iterator[Fault]:
        """Do what is asked, and cut the connection ``when`` something is so, instead of giving the answer."""
        fault = Fault(texts, chance, most, when)
        self.losses.append(fault)
        try:
            yield fault
        finally:
            self.losses.remove(fault)

    def forget(self) -> None:
        """Forget the connections that there are."""
        for passage in list(self._passages):
            passage.is_forgotten = True

    def close(self) -> None:
        """Cut all connections, and take no more."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for passage in list(self._passages):
            passage.cut()

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, *exc) -> None:
        self.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    passage = Passage(self, client, connected(self.server))
                except OSError:
                    client.close()
                    continue
                self._passages.add(passage)
                passage.open(on_end=self._passages.discard)


class Passage:
    """One connection of a client, and ours to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket):
        self._proxy, self._client, self._server = proxy, client, server
        self._request, self._judged = b"", []
        self._lost: Fault | None = None
        self._moved, self.is_forgotten = time.monotonic(), False

    def open(self, on_end: Callable[["Passage"], object]) -> None:
        self._on_end = on_end
        for pump in (self._pass_requests, self._pass_answers):
            threading.Thread(target=self._until_cut, args=[pump], daemon=True).start()

    def cut(self) -> None:
        """For both sides; what neither has read yet is gone."""
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._on_end(self)

    def _until_cut(self, pump: Callable[[], None]) -> None:
        try:
            pump()
        except OSError:
            pass
        finally:
            self.cut()

    def _pass_requests(self) -> None:
        for data in self._remembered(chunks(self._client)):
            self._request += data
            self._lost = self._lost or self._met()
            self._server.sendall(data)

    def _pass_answers(self) -> None:
        for data in self._remembered(chunks(self._server)):
            if self._lost:
                self._lose(self._lost)
                return
            self._request, self._judged = b"", []
            self._client.sendall(data)

    def _remembered(self, all_chunks: Iterator[bytes]) -> Iterator[bytes]:
        for data in all_chunks:
            now = time.monotonic()
            self.is_forgotten |= now - self._moved > self._proxy.forgets_after
            self._moved = now
            if not self.is_forgotten:
                yield data

    def _met(self) -> Fault | None:
        """The first fault that happens to this request; each is asked once, when the request has its texts."""
        for fault in list(self._proxy.losses):
            if fault not in self._judged and all(text in self._request for text in fault.texts):
                self._judged.append(fault)
                if fault.meets():
                    return fault
        return None

    def _lose(self, fault: Fault) -> None:
        self._server.settimeout(QUIET)
        with suppress(TimeoutError):
            for _ in chunks(self._server):
                continue
        until(fault.when)


def chunks(end: socket.socket) -> Iterator[bytes]:
    """What comes, as it comes."""
    return iter(lambda: end.recv(CHUNK), b"")


def connected(address: Address) -> socket.socket:
    if isinstance(address, tuple):
        return socket.create_connection(address)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(address)
    return connection
