from django.db import migrations, models

import djqueue.models

HOT = models.Index(fields=["state", "queue", "sort_key", "sort_at", "seq"], name="djqueue_message_hot")
SHORT_LIVED = ("djqueue_message", "djqueue_lane", "djqueue_ticket", "djqueue_fact")
"""Tables whose rows live for seconds, next to a backlog that may live for days."""
VACUUM = {
    "autovacuum_vacuum_scale_factor": "0",  # not in proportion to the rows: claims pass what was completed
    "autovacuum_vacuum_threshold": "20000",
    "vacuum_index_cleanup": "on",  # also if few pages of the table have anything to remove
    "vacuum_truncate": "off",  # which locks the table, and the next burst needs the pages again
}


def add_hot_index(apps, schema_editor):
    """Let PostgreSQL use this index only where the state is asked for: it has all rows, as no state is null.

    A vacuum of an empty queue, as it mostly is, leaves the planner with a table of no rows. It would then look up rows
    by their seq, the last column, reading all of this index for each."""
    is_partial = schema_editor.connection.vendor == "postgresql"
    condition = models.Q(state__isnull=False) if is_partial else None
    index = models.Index(fields=HOT.fields, name=HOT.name, condition=condition)
    schema_editor.add_index(apps.get_model("djqueue", "QueueMessage"), index)


def set_storage(apps, schema_editor):
    """How PostgreSQL vacuums the tables, and how it compresses records of the history.

    LZ4 takes the same room as its own method and half of the processor time. A server that was built without it
    compresses none. No settlement waits for a vacuum that shortens the table."""
    if schema_editor.connection.vendor != "postgresql":
        return
    for table in SHORT_LIVED:
        options = ", ".join(f"{name} = {value}" for name, value in VACUUM.items())
        schema_editor.execute(f"ALTER TABLE {table} SET ({options})")
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        has_lz4 = cursor.fetchone() == (True,)
    how = "COMPRESSION lz4" if has_lz4 else "STORAGE EXTERNAL"
    schema_editor.execute(
        f"ALTER TABLE djqueue_history ALTER COLUMN records SET {how}, "
        "SET (vacuum_truncate = off, toast.vacuum_truncate = off)"
    )


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Dashboard",
            fields=[
                ("name", models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="name")),
            ],
            options={
                "verbose_name": "dashboard",
                "verbose_name_plural": "dashboard",
                "permissions": [
                    ("view_arguments", "Can view the arguments of messages"),
                    ("retry", "Can retry messages that have failed"),
                    ("remove", "Can cancel and remove messages, and purge queues"),
                    ("pause", "Can pause and resume queues, commands, schedules, lanes and consumers"),
                    ("run", "Can run messages and schedules now, and reprioritise and move messages"),
                    ("edit_schedules", "Can add, change and remove schedules made at run time"),
                ],
                "managed": False,
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="QueueFact",
            fields=[
                (
                    "name",
                    djqueue.models.BytewiseCharField(
                        max_length=255, primary_key=True, serialize=False, verbose_name="key"
                    ),
                ),
                ("value", djqueue.models.CheckedBinaryField()),
                ("until", djqueue.models.CheckedBigIntegerField(null=True, verbose_name="until")),
                ("counter", djqueue.models.CheckedBigIntegerField(default=0, verbose_name="counter")),
            ],
            options={
                "verbose_name": "fact",
                "verbose_name_plural": "facts",
                "db_table": "djqueue_fact",
                "indexes": [models.Index(fields=["until"], name="djqueue_fact_until")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("until__isnull", False), ("counter__range", (0, 1000000000000000)), _connector="OR"
                        ),
                        name="djqueue_fact_counter",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueHistory",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("queue", djqueue.models.BytewiseCharField(max_length=100, verbose_name="queue")),
                ("at", djqueue.models.CheckedBigIntegerField(verbose_name="settled")),
                ("count", djqueue.models.CheckedIntegerField(verbose_name="messages")),
                ("first_id", djqueue.models.BytewiseCharField(max_length=64, verbose_name="first id")),
                ("last_id", djqueue.models.BytewiseCharField(max_length=64, verbose_name="last id")),
                ("records", djqueue.models.BytewiseTextField(verbose_name="records")),
            ],
            options={
                "verbose_name": "history",
                "verbose_name_plural": "history",
                "db_table": "djqueue_history",
                "indexes": [models.Index(fields=["queue", "seq", "first_id", "last_id"], name="djqueue_history_place")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("count__range", (1, 1000))), name="djqueue_history_count"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueLane",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("queue", djqueue.models.BytewiseCharField(max_length=100, verbose_name="queue")),
                ("name", djqueue.models.BytewiseCharField(max_length=255, verbose_name="name")),
                ("number", djqueue.models.CheckedBigIntegerField()),
                ("gate", djqueue.models.BytewiseTextField(verbose_name="gate")),
                ("in_flight", djqueue.models.CheckedIntegerField(default=0, verbose_name="in flight")),
                ("turn", djqueue.models.CheckedBigIntegerField(default=0)),
                ("not_before", djqueue.models.CheckedBigIntegerField(default=0, verbose_name="not before")),
                ("paused_reason", djqueue.models.BytewiseTextField(default="", verbose_name="paused")),
                ("rates", djqueue.models.BytewiseTextField(default="")),
                (
                    "state",
                    djqueue.models.CheckedBigIntegerField(
                        choices=[(0, "ready"), (1, "closed"), (2, "scheduled")], default=1, verbose_name="state"
                    ),
                ),
                ("sort_key", djqueue.models.CheckedIntegerField(default=0)),
                ("sort_at", djqueue.models.CheckedBigIntegerField(default=0)),
            ],
            options={
                "verbose_name": "lane",
                "verbose_name_plural": "lanes",
                "db_table": "djqueue_lane",
                "indexes": [models.Index(fields=["state", "queue", "sort_key", "sort_at"], name="djqueue_lane_place")],
                "constraints": [
                    models.UniqueConstraint(fields=("queue", "name"), name="djqueue_lane_name"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("state__range", (0, 2)), ("state__gte", 16), _connector="OR"), ("number__gte", 16)
                        ),
                        name="djqueue_lane_state",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueMessage",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False, verbose_name="arrival")),
                ("queue", djqueue.models.BytewiseCharField(max_length=100, verbose_name="queue")),
                ("entry_id", djqueue.models.BytewiseCharField(db_column="id", max_length=64, verbose_name="id")),
                (
                    "state",
                    djqueue.models.CheckedBigIntegerField(
                        choices=[
                            (0, "ready"),
                            (1, "delayed"),
                            (2, "leased"),
                            (3, "delayed, of a lane"),
                            (4, "leased, of a lane"),
                        ],
                        verbose_name="state",
                    ),
                ),
                ("sort_key", djqueue.models.CheckedIntegerField()),
                ("sort_at", djqueue.models.CheckedBigIntegerField()),
                ("neg_priority", djqueue.models.CheckedIntegerField()),
                ("due_since", djqueue.models.CheckedBigIntegerField()),
                ("token", djqueue.models.CheckedBigIntegerField()),
                ("attempts", djqueue.models.CheckedIntegerField(verbose_name="attempts")),
                ("failures", djqueue.models.CheckedIntegerField(verbose_name="failures")),
                ("lost", djqueue.models.CheckedIntegerField(verbose_name="lost attempts")),
                ("begun", djqueue.models.CheckedSmallIntegerField(db_default=0)),
                ("created", djqueue.models.CheckedBigIntegerField(verbose_name="created")),
                ("lane", djqueue.models.BytewiseCharField(max_length=255, verbose_name="lane")),
                ("gate", djqueue.models.BytewiseTextField(db_default="", verbose_name="gate")),
                ("lane_number", djqueue.models.CheckedBigIntegerField(db_default=0)),
                ("command", djqueue.models.BytewiseCharField(max_length=255, verbose_name="command")),
                ("owner", djqueue.models.BytewiseCharField(max_length=100, verbose_name="held by")),
                ("errors", djqueue.models.BytewiseTextField(verbose_name="what went wrong")),
                ("body", djqueue.models.CheckedBinaryField()),
            ],
            options={
                "verbose_name": "message",
                "verbose_name_plural": "messages",
                "db_table": "djqueue_message",
                "constraints": [
                    models.UniqueConstraint(fields=("entry_id", "queue"), name="djqueue_message_id"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__range", (0, 2)),
                            models.Q(
                                ("lane_number__gte", 16),
                                models.Q(("state__in", (3, 4)), ("state", models.F("lane_number")), _connector="OR"),
                            ),
                            _connector="OR",
                        ),
                        name="djqueue_message_state",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="QueueTicket",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("queue", djqueue.models.BytewiseCharField(max_length=100, verbose_name="queue")),
                ("created", djqueue.models.CheckedBigIntegerField(verbose_name="created")),
                ("name", djqueue.models.BytewiseCharField(max_length=255, verbose_name="lane")),
                ("number", djqueue.models.CheckedBigIntegerField()),
                ("gate", djqueue.models.BytewiseTextField(verbose_name="gate")),
            ],
            options={
                "verbose_name": "ticket",
                "verbose_name_plural": "tickets",
                "db_table": "djqueue_ticket",
                "indexes": [models.Index(fields=["queue", "created"], name="djqueue_ticket_created")],
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("number__gte", 16)), name="djqueue_ticket_lane")
                ],
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunPython(add_hot_index, migrations.RunPython.noop)],
            state_operations=[migrations.AddIndex("queuemessage", HOT)],
        ),
        migrations.RunPython(set_storage, migrations.RunPython.noop),
    ]
