"""The tables of the database backend: what is still to do, its lanes, small facts, and what became of messages.

The columns are written and read by :mod:`djqueue.backends.database.sql`; the models are for migrations, for the admin
and for looking. All moments are microseconds since 1970 by the clock of the database. A value of another type than its
column is refused by every database when it is written, so no reader has to expect one.
"""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

NAME_LENGTH = 100
"""The longest name of a queue, with the ``:failed`` of a failed queue."""
ID_LENGTH = 64
COMMAND_LENGTH = 255
KEY_LENGTH = 255
FIRST_LANE = 16
"""The least number of a lane. It is the state of what waits in the lane, so it is none of the other states."""
MOST_COUNTED = 10**15
"""The largest counter that is kept for ever, so that no sum of counters has more than 64 bits."""
MOST_TOGETHER = 1000
"""The most records in one row of the history."""


class Checked(models.Field):
    """Mixed into a field: SQLite refuses values of other types too. By itself it takes any value in any column.

    It sorts numbers before texts and texts before bytes, and to compare costs half as much as to ask for the type.
    """

    sqlite_check = "{0} = CAST({0} AS INTEGER)"
    """The condition that a value is of the type of the column."""

    def db_check(self, connection) -> str | None:
        if connection.vendor != "sqlite":
            return super().db_check(connection)
        return self.sqlite_check.format(connection.ops.quote_name(self.column))


class CheckedSmallIntegerField(Checked, models.SmallIntegerField):
    """A whole number of 16 bits."""


class CheckedIntegerField(Checked, models.IntegerField):
    """A whole number of 32 bits."""


class CheckedBigIntegerField(Checked, models.BigIntegerField):
    """A whole number of 64 bits."""


class CheckedBinaryField(Checked, models.BinaryField):
    """Bytes."""

    sqlite_check = "{0} >= x''"


class Bytewise(Checked):
    """Mixed into a text field: its column compares byte by byte, and takes any text, on every database.

    MariaDB's other collations, ``utf8mb4_bin`` too, compare ``'a'`` and ``'a '`` as equal; and the character set of its
    server may not hold every text, so the column has its own.
    """

    sqlite_check = "{0} < x''"

    def db_type(self, connection) -> str | None:
        kind = super().db_type(connection)
        if connection.vendor == "mysql":
            return f"{kind} CHARACTER SET utf8mb4"
        # A varchar by its long name, for which Django adds no second index for LIKE: with "C" one index serves both.
        return kind.replace("varchar", "character varying") if connection.vendor == "postgresql" else kind

    def db_parameters(self, connection) -> dict:
        return {**super().db_parameters(connection), "collation": _collation(connection)}


def _collation(connection) -> str | None:
    """The collation. None is the database's default, which is bytewise on SQLite.

    MySQL holds no queue, but the migrations run on it in a project whose queues are elsewhere.
    """
    if connection.vendor == "mysql":
        return "utf8mb4_nopad_bin" if connection.mysql_is_mariadb else "utf8mb4_0900_bin"
    return "C" if connection.vendor == "postgresql" else None


class BytewiseCharField(Bytewise, models.CharField):
    """A short text, compared byte by byte."""


class BytewiseTextField(Bytewise, models.TextField):
    """A long text, compared byte by byte."""


class QueueMessage(models.Model):
    """An entry that waits or is leased, in its queue or in its failed queue (``<name>:failed``); deleted when done."""

    class State(models.IntegerChoices):
        READY = 0, _("ready")
        DELAYED = 1, _("delayed")
        LEASED = 2, _("leased")
        # Of entries that have a gate. One that waits in its lane has the number of that, which is higher than these.
        LATER = 3, _("delayed, of a lane")
        OUT = 4, _("leased, of a lane")

    seq = models.BigAutoField(_("arrival"), primary_key=True)
    queue = BytewiseCharField(_("queue"), max_length=NAME_LENGTH)
    entry_id = BytewiseCharField(_("id"), max_length=ID_LENGTH, db_column="id")
    state = CheckedBigIntegerField(_("state"), choices=State.choices)
    # The two key columns that change their meaning with the state, so that one index orders all three.
    sort_key = CheckedIntegerField()  # ready: neg_priority; delayed and leased: 0
    sort_at = CheckedBigIntegerField()  # ready: due_since; delayed: when due; leased: when the lease runs out
    neg_priority = CheckedIntegerField()  # -1 - priority, which turns the order round and still has 32 bits
    due_since = CheckedBigIntegerField()  # when it first fell due: its place in the order, for life
    token = CheckedBigIntegerField()  # new and random at every claim; 0 when given up
    attempts = CheckedIntegerField(_("attempts"))
    failures = CheckedIntegerField(_("failures"))
    lost = CheckedIntegerField(_("lost attempts"))
    begun = CheckedSmallIntegerField(db_default=0)  # whether a start is lost if the lease runs out
    created = CheckedBigIntegerField(_("created"))
    lane = BytewiseCharField(_("lane"), max_length=COMMAND_LENGTH)
    gate = BytewiseTextField(_("gate"), db_default="")  # "": it has none, and its lane is only a name
    lane_number = CheckedBigIntegerField(db_default=0)  # its state when it is ready: 0, or the number of its lane
    command = BytewiseCharField(_("command"), max_length=COMMAND_LENGTH)
    owner = BytewiseCharField(_("held by"), max_length=NAME_LENGTH)
    errors = BytewiseTextField(_("what went wrong"))
    body = CheckedBinaryField()

    class Meta:
        db_table = "djqueue_message"
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        # Neither index begins with the queue. PostgreSQL would look for an id by way of the queue alone, and read all
        # of it, whenever it last counted the rows while the table was all but empty, as a queue mostly is.
        constraints = [
            models.UniqueConstraint(fields=["entry_id", "queue"], name="djqueue_message_id"),
            # What is delayed or leased of a lane returns there by its number, which is the state of what waits there.
            models.CheckConstraint(
                condition=models.Q(state__range=(0, 2))
                | models.Q(lane_number__gte=FIRST_LANE)
                & (models.Q(state__in=(3, 4)) | models.Q(state=models.F("lane_number"))),
                name="djqueue_message_state",
            ),
        ]
        indexes = [models.Index(fields=["state", "queue", "sort_key", "sort_at", "seq"], name="djqueue_message_hot")]

    def __str__(self) -> str:
        return f"{self.queue}/{self.entry_id}"


class QueueLane(models.Model):
    """What is known of a lane: as long as it holds or remembers something."""

    class State(models.IntegerChoices):
        READY = 0, _("ready")
        CLOSED = 1, _("closed")
        SCHEDULED = 2, _("scheduled")
        # A lane that is queued in its parent has the number of the parent.

    seq = models.BigAutoField(primary_key=True)
    queue = BytewiseCharField(_("queue"), max_length=NAME_LENGTH)
    name = BytewiseCharField(_("name"), max_length=COMMAND_LENGTH)
    number = CheckedBigIntegerField()  # a hash of its name
    gate = BytewiseTextField(_("gate"))
    in_flight = CheckedIntegerField(_("in flight"), default=0)  # how many have left and are not settled
    turn = CheckedBigIntegerField(default=0)
    not_before = CheckedBigIntegerField(_("not before"), default=0)
    paused_reason = BytewiseTextField(_("paused"), default="")
    rates = BytewiseTextField(default="")  # a line for each of its windows: what was spent of it
    state = CheckedBigIntegerField(_("state"), choices=State.choices, default=State.CLOSED)
    sort_key = CheckedIntegerField(default=0)  # ready and queued: neg_priority of its first; scheduled: 0
    sort_at = CheckedBigIntegerField(default=0)  # ready and queued: turn; scheduled: when to look again

    class Meta:
        db_table = "djqueue_lane"
        verbose_name = _("lane")
        verbose_name_plural = _("lanes")
        constraints = [
            models.UniqueConstraint(fields=["queue", "name"], name="djqueue_lane_name"),
            models.CheckConstraint(
                condition=(models.Q(state__range=(0, 2)) | models.Q(state__gte=FIRST_LANE))
                & models.Q(number__gte=FIRST_LANE),
                name="djqueue_lane_state",
            ),
        ]
        indexes = [models.Index(fields=["state", "queue", "sort_key", "sort_at"], name="djqueue_lane_place")]

    def __str__(self) -> str:
        return f"{self.queue}/{self.name}"


class QueueTicket(models.Model):
    """A note that an entry arrived in a lane. So a put touches no lane, and does not wait for transactions that do."""

    seq = models.BigAutoField(primary_key=True)
    queue = BytewiseCharField(_("queue"), max_length=NAME_LENGTH)
    created = CheckedBigIntegerField(_("created"))
    name = BytewiseCharField(_("lane"), max_length=COMMAND_LENGTH)
    number = CheckedBigIntegerField()
    gate = BytewiseTextField(_("gate"))  # "": only look at the lane, if there is one

    class Meta:
        db_table = "djqueue_ticket"
        verbose_name = _("ticket")
        verbose_name_plural = _("tickets")
        constraints = [models.CheckConstraint(condition=models.Q(number__gte=FIRST_LANE), name="djqueue_ticket_lane")]
        indexes = [models.Index(fields=["queue", "created"], name="djqueue_ticket_created")]

    def __str__(self) -> str:
        return f"{self.queue}/{self.name}"


class QueueFact(models.Model):
    """A small fact shared by all processes: a mark, a lock, a tick, a result, a counter."""

    name = BytewiseCharField(_("key"), max_length=KEY_LENGTH, primary_key=True)
    value = CheckedBinaryField()
    until = CheckedBigIntegerField(_("until"), null=True)  # null: for ever
    counter = CheckedBigIntegerField(_("counter"), default=0)  # the number, where the fact is a counter

    class Meta:
        db_table = "djqueue_fact"
        verbose_name = _("fact")
        verbose_name_plural = _("facts")
        constraints = [
            models.CheckConstraint(
                condition=models.Q(until__isnull=False) | models.Q(counter__range=(0, MOST_COUNTED)),
                name="djqueue_fact_counter",
            )
        ]
        indexes = [models.Index(fields=["until"], name="djqueue_fact_until")]

    def __str__(self) -> str:
        return self.name


class QueueHistory(models.Model):
    """What became of the messages of one settlement: a row for all of them, as a row for each would cost too much."""

    seq = models.BigAutoField(primary_key=True)
    queue = BytewiseCharField(_("queue"), max_length=NAME_LENGTH)
    at = CheckedBigIntegerField(_("settled"))
    count = CheckedIntegerField(_("messages"))
    first_id = BytewiseCharField(_("first id"), max_length=ID_LENGTH)  # the least id and the greatest: ids begin with
    last_id = BytewiseCharField(_("last id"), max_length=ID_LENGTH)  # their time, so few rows have an id between them
    records = BytewiseTextField(_("records"))  # a line each, behind a line break: the id, a space, the record

    class Meta:
        db_table = "djqueue_history"
        verbose_name = _("history")
        verbose_name_plural = _("history")
        constraints = [
            models.CheckConstraint(condition=models.Q(count__range=(1, MOST_TOGETHER)), name="djqueue_history_count")
        ]
        indexes = [models.Index(fields=["queue", "seq", "first_id", "last_id"], name="djqueue_history_place")]

    def __str__(self) -> str:
        return f"{self.queue}/{self.first_id}"


class Dashboard(models.Model):
    """No table: it gives the pages in the admin their place and their permissions."""

    name = models.CharField(_("name"), max_length=COMMAND_LENGTH, primary_key=True)

    class Meta:
        managed = False
        verbose_name = verbose_name_plural = _("dashboard")
        default_permissions = ("view",)
        permissions = [
            ("view_arguments", _("Can view the arguments of messages")),
            ("retry", _("Can retry messages that have failed")),
            ("remove", _("Can cancel and remove messages, and purge queues")),
            ("pause", _("Can pause and resume queues, commands, schedules, lanes and consumers")),
            ("run", _("Can run messages and schedules now, and reprioritise and move messages")),
            ("edit_schedules", _("Can add, change and remove schedules made at run time")),
        ]

    def __str__(self) -> str:
        return self.name
