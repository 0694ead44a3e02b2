"""Redis alone, as a cluster of three nodes, and as a primary with a replica that three Sentinels watch."""

import socket
import time
from contextlib import suppress
from pathlib import Path

from tests.support.server_process import PATIENCE, Server

SLOTS = 16384


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Redis(Server):
    """On a free port of the loopback address, without persistence; `Redis(path, *Redis.DURABLE)` survives a kill."""

    kind, program, package = "redis", "redis-server", "redis-server"
    DURABLE = ("--appendonly", "yes", "--appendfsync", "no")

    def __init__(self, folder, *extra):
        super().__init__(folder, *extra)
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self):
        where = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        return [self.find(), *where, "--save", "", "--databases", "64", "--daemonize", "no", *self.extra]

    def ready(self):
        """Whether it answers itself: its port may have gone to another since it was found free."""
        try:
            ours = f"process_id:{self.process.pid}\r" in self.ask("INFO", "server")
            return ours and self.ask("PING") == "+PONG"  # "-LOADING …" while it reads its file
        except OSError:
            return False

    def ask(self, *words) -> str:
        """The reply to a command as the server writes it: of a text, without its length."""
        with socket.create_connection(("127.0.0.1", self.port), 5) as connection:
            connection.sendall(" ".join(map(str, words)).encode() + b"\r\n")
            with connection.makefile("r", newline="\r\n") as reply:
                first = reply.readline().rstrip("\r\n")
                return reply.read(int(first[1:])) if first.startswith("$") else first

    def has_role(self, role: str) -> bool:
        """Whether it says that it is a "master" or a "slave". False while it does not answer: one that changes its
        role closes its connections."""
        with suppress(OSError):
            return f"role:{role}\r" in self.ask("INFO", "replication")
        return False


class ClusterNode(Redis):
    """One node of a cluster, which knows no other yet."""

    def __init__(self, folder, *extra):
        super().__init__(folder, *extra)
        self.bus = free_port()  # its own choice, the port plus 10,000, may be none

    def command(self):
        cluster = ["--cluster-enabled", "yes", "--cluster-port", str(self.bus), "--cluster-require-full-coverage", "no"]
        return [*super().command(), *cluster]

    @property
    def id(self) -> str:
        return self.ask("CLUSTER", "MYID")

    def meet(self, other: "ClusterNode"):
        self.ask("CLUSTER", "MEET", "127.0.0.1", other.port, other.bus)


class Several(Server):
    """Several programs that are one server. They start in the order of `members`, and stop in the reverse."""

    program, package = Redis.program, Redis.package
    members: list[Redis]

    def start(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        for member in self.members:
            member.start()
        self.join()
        return self

    def stop(self):
        for member in reversed(self.members):
            member.stop()

    def join(self):
        """Make them one, and wait until they are."""
        raise NotImplementedError

    @property
    def running(self) -> bool:
        return all(member.running for member in self.members)


class Cluster(Several):
    """Three primaries with a third of the slots each. `extra` are further arguments of each of them."""

    kind = "cluster"

    def __init__(self, folder, *extra):
        super().__init__(folder, *extra)
        self.members = [ClusterNode(Path(folder) / str(number), *extra) for number in range(3)]

    @property
    def url(self):
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.members)

    def join(self):
        share = SLOTS // len(self.members) + 1
        for number, node in enumerate(self.members):
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            last = min(SLOTS, (number + 1) * share) - 1
            node.ask("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        await_true(self._have_met)

    def add_replica(self, of: ClusterNode) -> ClusterNode:
        """One more node, which has what the other one has; returns when it is in step."""
        replica = ClusterNode(self.folder / str(len(self.members)), *self.extra)
        replica.start()
        self.members.append(replica)
        await_true(lambda: self._have_met() and replica.ask("CLUSTER", "REPLICATE", of.id) == "+OK")
        await_true(lambda: "master_link_status:up" in replica.ask("INFO", "replication"))
        return replica

    def _have_met(self) -> bool:
        """Whether they are one. Who does not know the other is introduced again: a node forgets a meeting that is not
        answered within its time-out."""
        first, *others = self.members
        for node in others:
            if node.id not in first.ask("CLUSTER", "NODES") or first.id not in node.ask("CLUSTER", "NODES"):
                first.meet(node)
        return self._is_whole()

    def _is_whole(self) -> bool:
        told = [node.ask("CLUSTER", "INFO") for node in self.members]
        known = f"cluster_known_nodes:{len(self.members)}\r"
        return all("cluster_state:ok" in one and known in one for one in told) and all(
            node.ask("CLUSTER", "NODES").count(" connected") == len(self.members) for node in self.members
        )


class SentinelProcess(Redis):
    """One Sentinel, which is told of the primary in its file."""

    watched = ""

    def initialise(self):
        self.config.write_text(self.watched)

    @property
    def config(self) -> Path:
        return self.folder / "sentinel.conf"

    def command(self):
        where = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        return [self.find(), str(self.config), *where, "--sentinel", "--daemonize", "no"]


class Sentinel(Several):
    """A primary, its replica, and three Sentinels that replace a primary that is away for `down` milliseconds."""

    kind = "sentinel"
    service = "jobs"
    down = 30_000

    def __init__(self, folder, *extra):
        super().__init__(folder, *extra)
        self.primary = Redis(Path(folder) / "primary", *extra)
        self.replica = Redis(
            Path(folder) / "replica",
            "--replicaof",
            "127.0.0.1",
            str(self.primary.port),
            "--repl-diskless-sync-delay",
            "0",
            *extra,
        )
        self.sentinels = [SentinelProcess(Path(folder) / f"sentinel{number}") for number in range(3)]
        for sentinel in self.sentinels:
            sentinel.watched = self._watched()
        self.members = [self.primary, self.replica, *self.sentinels]

    @property
    def url(self):
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{self.service}/0"

    def join(self):
        await_true(lambda: "master_link_status:up" in self.replica.ask("INFO", "replication"))
        told = "status=ok", "slaves=1", "sentinels=3"
        await_true(lambda: all(word in one.ask("INFO", "sentinel") for one in self.sentinels for word in told))

    def _watched(self) -> str:
        return (
            f"sentinel monitor {self.service} 127.0.0.1 {self.primary.port} 2\n"
            f"sentinel down-after-milliseconds {self.service} {self.down}\n"
            f"sentinel failover-timeout {self.service} 5000\n"
        )


class QuickSentinel(Sentinel):
    """The same, where a primary may be away for a second."""

    kind = "sentinel-quick"
    down = 1000


def await_true(condition):
    """Wait until it is so. RuntimeError after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with suppress(OSError):
            if condition():
                return
        if time.monotonic() > deadline:
            raise RuntimeError("the servers did not become one")
        time.sleep(0.05)
