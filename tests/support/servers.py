"""Private servers, each a real program in a temporary folder and never on a well-known port.

Standard library only, and no Django: the development tool starts them before there is a virtual environment.
`start("redis")` starts one for the whole run and puts its address into the environment, where every process of the
run finds it. A test that hurts its server makes one of its own: `with Redis(tmp_path) as server: server.kill9()`.
What a server has acknowledged survives the kill of its process (not of the machine: nothing is synced to disk).
"""

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.redis_servers import Cluster, QuickSentinel, Redis, Sentinel, free_port
from tests.support.server_process import PATIENCE, Server

LONGEST_SOCKET = 107
ENGINES = {"postgres": "postgresql", "mariadb": "mysql"}


def run_dir() -> Path:
    """The folder of this test run; made once, known to all its processes by DJQUEUE_TEST_DIR, removed at the end."""
    if "DJQUEUE_TEST_DIR" not in os.environ:
        path = short_dir()
        os.environ["DJQUEUE_TEST_DIR"] = str(path)
        at_exit_of_this_process(shutil.rmtree, path, ignore_errors=True)
    return Path(os.environ["DJQUEUE_TEST_DIR"])


def short_dir() -> Path:
    """A new temporary folder that other users may pass through, with a path short enough for Unix sockets."""
    parent = tempfile.gettempdir() if len(tempfile.gettempdir()) < LONGEST_SOCKET - 60 else "/tmp"
    path = Path(tempfile.mkdtemp(prefix="djq-", dir=parent))
    path.chmod(0o711)
    return path


def at_exit_of_this_process(function, *args, **kwargs):
    owner = os.getpid()
    atexit.register(lambda: function(*args, **kwargs) if os.getpid() == owner else None)


class Postgres(Server):
    """On a Unix socket in its folder; superuser `djqueue` without a password."""

    kind, program, package, account = "postgres", "postgres", "postgresql", "postgres"
    stop_signal = signal.SIGINT  # "fast": do not wait for clients to leave

    @classmethod
    def find(cls):
        """Debian keeps the programs of each version out of PATH; the newest is taken."""
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: float(p.parts[4]))
        return str(versions[-1]) if versions else super().find()

    @property
    def url(self):
        return f"postgresql://djqueue@/postgres?host={self.folder}"

    def initialise(self):
        options = ["--no-sync", "--auth=trust", "--username=djqueue", "--encoding=UTF8", "--locale=C"]
        self._run([self._tool("initdb"), "-D", str(self.folder / "data"), *options])

    def command(self):
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off", "max_connections=200"]
        options = [word for setting in settings for word in ("-c", setting)]
        return [self.find(), "-D", str(self.folder / "data"), *options, *self.extra]

    def ready(self):
        command = [self._tool("pg_isready"), "-q", "-h", str(self.folder), "-d", "postgres"]
        return subprocess.run(command, timeout=PATIENCE).returncode == 0

    def _tool(self, name):
        return str(Path(self.find()).with_name(name))


class PgBouncer(Server):
    """Before the run's PostgreSQL, on a Unix socket in its folder: a client has a connection for one transaction."""

    kind, program, package, account = "pgbouncer", "pgbouncer", "pgbouncer", "postgres"
    PORT = 6432

    @property
    def url(self):
        return f"postgresql://djqueue@/postgres?host={self.folder}&port={self.PORT}"

    def initialise(self):
        url = urlsplit(address("postgres"))
        host = parse_qs(url.query).get("host", [url.hostname])[0]
        lines = [
            "[databases]",
            f"* = host={host} port={url.port or 5432} user={url.username}",
            "[pgbouncer]",
            "pool_mode = transaction",
            "auth_type = any",
            f"unix_socket_dir = {self.folder}",
            f"listen_port = {self.PORT}",
        ]
        (self.folder / "ini").write_text("\n".join(lines))
        (self.folder / "ini").chmod(0o644)

    def command(self):
        return [self.find(), *self.extra, str(self.folder / "ini")]

    def ready(self):
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(f"{self.folder}/.s.PGSQL.{self.PORT}")
                return True
        except OSError:
            return False


class MariaDB(Server):
    """On a Unix socket in its folder; user `root` without a password, an empty database `djqueue`."""

    kind, program, package, account = "mariadb", "mariadbd", "mariadb-server", "mysql"

    @property
    def url(self):
        return f"mysql://root@/djqueue?host={self.folder}/sock"

    def initialise(self):
        (self.folder / "init.sql").write_text("CREATE DATABASE IF NOT EXISTS djqueue CHARACTER SET utf8mb4;\n")
        (self.folder / "init.sql").chmod(0o644)
        tool, data = shutil.which("mariadb-install-db"), self.folder / "data"
        options = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        self._run([tool, "--no-defaults", f"--datadir={data}", *options])

    def command(self):
        where = [f"--datadir={self.folder}/data", f"--socket={self.folder}/sock", f"--pid-file={self.folder}/pid"]
        where.append(f"--tmpdir={self.folder}")  # two servers that share /tmp delete each other's tables there
        cheap = ["--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M", "--max-connections=200"]
        network = ["--skip-networking", "--character-set-server=utf8mb4", f"--init-file={self.folder}/init.sql"]
        return [self.find(), "--no-defaults", *where, *cheap, *network, *self.extra]

    def ready(self):
        """A server that accepts clients greets them with protocol version 10."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(f"{self.folder}/sock")
                return connection.recv(5)[4:] == b"\x0a"
        except OSError:
            return False


class Sqs(Server):
    """Moto's SQS, on a free port of the loopback address; it takes any credentials. Of the virtual environment."""

    kind, program = "sqs", "moto"

    def __init__(self, folder, *extra):
        super().__init__(folder, *extra)
        self.port = free_port()

    @classmethod
    def find(cls):
        return sys.executable if find_spec("moto") and find_spec("flask") else None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}?region=eu-west-1"

    def command(self):
        return [self.find(), str(Path(__file__).with_name("sqs_server.py")), "--port", str(self.port), *self.extra]

    def ready(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1):
                return True
        except OSError:
            return False


KINDS = {server.kind: server for server in (Redis, Cluster, Sentinel, QuickSentinel, Postgres, PgBouncer, MariaDB, Sqs)}
SHARED = (
    "redis",
    "postgres",
    "mariadb",
    "sqs",
    *(("cluster", "sentinel") if os.environ.get("DJQUEUE_FULL") == "1" else ()),
)
"""The kinds of which a run of everything has one; in the small size a test that needs another starts it."""


def variable(kind: str) -> str:
    """The environment variable with the address of that server; set it beforehand to use one of your own."""
    return f"DJQUEUE_TEST_{kind.upper()}"


def missing(kind: str) -> str:
    """Why there is no such server, in a sentence; "" if there is one."""
    if variable(kind) in os.environ or KINDS[kind].find():
        return ""
    cls = KINDS[kind]
    how = f"apt-get install {cls.package}" if cls.package else "pip install -e '.[test]'"
    return f"{cls.program} not found: {how}, or set {variable(kind)} to the address of one"


def address(kind: str) -> str:
    """The URL of the run's server; of one not started yet, the URL it will have (a port is chosen at its start)."""
    return os.environ.get(variable(kind)) or KINDS[kind](run_dir() / kind).url


def database(kind: str, url: str) -> dict:
    """One value of Django's setting DATABASES: the database of such a server at that URL."""
    parts = urlsplit(url)
    return {
        "ENGINE": f"django.db.backends.{ENGINES[kind]}",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parse_qs(parts.query).get("host", [parts.hostname or ""])[0],
        "PORT": str(parts.port or ""),
    }


def start(kind: str):
    """Start the run's server, unless its address is known already; it stops when this process ends."""
    if variable(kind) in os.environ:
        return
    server = KINDS[kind](run_dir() / kind)
    at_exit_of_this_process(server.stop)
    server.start()
    os.environ[variable(kind)] = server.url
