"""Who takes part, and how each is started: near to one process of four threads, and at its best on two processors."""

from __future__ import annotations

from dataclasses import dataclass, field

PEERS = "tests.benchmarks.race.peers"


@dataclass(frozen=True)
class Workers:
    """A command line, how many processes of it are started, and how many messages they are given."""

    command: str
    count: int
    processes: int = 1
    env: dict[str, str] = field(default_factory=dict)
    words: str = ""
    """What the tables say of it."""


@dataclass(frozen=True)
class Entrant:
    name: str
    store: str
    peer: str
    """Its module in ``peers``."""
    packages: tuple[str, ...]
    """Those whose versions are told; none for djqueue."""
    one: Workers
    best: Workers
    env: dict[str, str] = field(default_factory=dict)
    kept: str = ""
    """What its documentation or source says of a message in hand at a kill."""

    @property
    def id(self) -> str:
        return f"{self.store}-{self.name}".lower().replace(" ", "-").replace(",", "")


def djqueue(store: str, one: int, best: int) -> Entrant:
    consumer = "django-admin queue_consumer --threads 4"
    return Entrant(
        "djqueue",
        store,
        "djqueue",
        (),
        Workers(consumer, one, words="4 threads"),
        Workers(f"{consumer} --processes 2", best, words="2 processes of 4 threads"),
        {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.settings"},
        "run again when its lease is over, 60 s by default",
    )


def huey(store: str, one: int, best: int) -> Entrant:
    consumer = f"huey_consumer {PEERS}.huey.huey -q"
    return Entrant(
        "huey",
        store,
        "huey",
        ("huey",),
        Workers(f"{consumer} -k thread -w 4", one, words="4 threads"),
        Workers(f"{consumer} -k process -w 2", best, words="2 processes"),
        kept="lost: it is taken out before it runs",
    )


def celery(name: str, kept: str, env: dict[str, str]) -> Entrant:
    worker = f"celery -A {PEERS}.celery worker --loglevel ERROR --without-gossip --without-mingle --without-heartbeat"
    return Entrant(
        name,
        "redis",
        "celery",
        ("celery", "kombu"),
        Workers(f"{worker} -P threads -c 4", 1_500, words="4 threads"),
        Workers(f"{worker} -P solo", 2_500, processes=2, words="2 solo processes"),
        env,
        kept,
    )


def django_tasks(store: str, one: int, best: int) -> Entrant:
    worker = "django-admin db_worker -v 0 --no-startup-delay --no-reload"
    return Entrant(
        "django-tasks-db",
        store,
        "django_tasks",
        ("django-tasks-db", "django-tasks"),
        Workers(worker, one, words="1 process"),
        Workers(worker, best, processes=2, words="2 processes"),
        {"DJANGO_SETTINGS_MODULE": "tests.benchmarks.race.django_tasks_settings"},
        "not run again: it stays RUNNING",
    )


DRAMATIQ = f"dramatiq {PEERS}.dramatiq"
RQ = "rq worker -q --worker-class rq.SimpleWorker race"
TASKIQ = f"taskiq worker {PEERS}.taskiq:broker --log-level ERROR"
SAQ = f"saq {PEERS}.saq.settings"
PROCRASTINATE = f"procrastinate --app {PEERS}.procrastinate.app --log-level error worker -c 10"
PGQUEUER = f"python -m {PEERS}.pgqueuer"
CHANCY = f"chancy --app {PEERS}.chancy.chancy worker start"

ENTRANTS = [
    djqueue("redis", 60_000, 80_000),
    huey("redis", 8_000, 10_000),
    Entrant(
        "dramatiq",
        "redis",
        "dramatiq",
        ("dramatiq",),
        Workers(f"{DRAMATIQ} -p 1 -t 4", 2_000, words="4 threads"),
        Workers(f"{DRAMATIQ} -p 2 -t 16", 8_000, words="2 processes of 16 threads"),
        kept="run again 60 s after the last sign of life of its worker, when another worker looks",
    ),
    celery("Celery", "lost: it is acknowledged before it runs", {}),
    celery("Celery acks_late", "run again after the visibility timeout, 1 hour by default", {"RACE_ACKS_LATE": "1"}),
    Entrant(
        "RQ",
        "redis",
        "rq",
        ("rq",),
        Workers(RQ, 500, words="1 process"),
        Workers(RQ, 1_000, processes=2, words="2 processes"),
        kept="marked as failed after some minutes, and not run again",
    ),
    Entrant(
        "taskiq",
        "redis",
        "taskiq",
        ("taskiq", "taskiq-redis"),
        Workers(f"{TASKIQ} -w 1", 6_000, words="1 process of 100 coroutines"),
        Workers(f"{TASKIQ} -w 2", 8_000, words="2 processes of 100 coroutines"),
        kept="run again after an idle timeout, 10 minutes by default",
    ),
    Entrant(
        "SAQ",
        "redis",
        "saq",
        ("saq",),
        Workers(SAQ, 2_500, words="1 process of 10 coroutines"),
        Workers(f"{SAQ} --workers 2", 4_000, words="2 processes of 10 coroutines"),
        kept="swept and aborted after a minute, and not run again by default",
    ),
    djqueue("postgres", 30_000, 40_000),
    Entrant(
        "pgqueuer",
        "postgres",
        "pgqueuer",
        ("pgqueuer", "asyncpg", "uvloop"),
        Workers(PGQUEUER, 15_000, words="1 process, batches of 100"),
        Workers(PGQUEUER, 25_000, processes=2, words="2 processes, batches of 100"),
        kept="run again 30 s after its last heartbeat",
    ),
    Entrant(
        "procrastinate",
        "postgres",
        "procrastinate",
        ("procrastinate", "psycopg"),
        Workers(PROCRASTINATE, 500, words="1 process of 10 coroutines"),
        Workers(PROCRASTINATE, 700, processes=2, words="2 processes of 10 coroutines"),
        kept="not run again, unless one writes a periodic task for it",
    ),
    Entrant(
        "chancy",
        "postgres",
        "chancy",
        ("chancy", "psycopg"),
        Workers(CHANCY, 800, words="4 threads"),
        Workers(CHANCY, 2_000, processes=2, env={"RACE_EXECUTOR": "async"}, words="2 processes of 100 coroutines"),
        kept="run again by a plugin that looks once a minute for workers lost for 90 s",
    ),
    django_tasks("postgres", 200, 300),
    djqueue("sqlite", 40_000, 40_000),
    huey("sqlite", 5_000, 7_000),
    django_tasks("sqlite", 400, 500),
]
