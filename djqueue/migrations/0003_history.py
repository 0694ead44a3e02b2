from django.db import migrations, models

import djqueue.models


def set_storage(apps, schema_editor):
    """Let PostgreSQL pack records by LZ4, or not at all: its own way costs more than to write them. No settlement waits
    for a vacuum that shortens the table."""
    if schema_editor.connection.vendor != "postgresql":
        return
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'")
        knows = cursor.fetchone()
    how = "COMPRESSION lz4" if knows and knows[0] else "STORAGE EXTERNAL"
    schema_editor.execute(
        f"ALTER TABLE djqueue_history ALTER COLUMN records SET {how}, "
        "SET (vacuum_truncate = off, toast.vacuum_truncate = off)"
    )


class Migration(migrations.Migration):
    dependencies = [("djqueue", "0002_vacuum")]

    operations = [
        migrations.CreateModel(
            name="QueueHistory",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("queue", djqueue.models.BytewiseCharField(max_length=100, verbose_name="queue")),
                ("at", models.BigIntegerField(verbose_name="settled")),
                ("count", models.IntegerField(verbose_name="messages")),
                ("first_id", djqueue.models.BytewiseCharField(max_length=64, verbose_name="first id")),
                ("last_id", djqueue.models.BytewiseCharField(max_length=64, verbose_name="last id")),
                ("records", djqueue.models.BytewiseTextField(verbose_name="records")),
            ],
            options={
                "verbose_name": "history",
                "verbose_name_plural": "history",
                "db_table": "djqueue_history",
                "indexes": [models.Index(fields=["queue", "seq", "first_id", "last_id"], name="djqueue_history_place")],
            },
        ),
        migrations.RunPython(set_storage, migrations.RunPython.noop),
    ]
