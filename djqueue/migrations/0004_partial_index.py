from django.db import migrations

INDEX, COLUMNS = "djqueue_message_hot", "state, queue, sort_key, sort_at, seq"


def _make(schema_editor, condition: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP INDEX {INDEX}")
        schema_editor.execute(f"CREATE INDEX {INDEX} ON djqueue_message ({COLUMNS}){condition}")


def make_partial(apps, schema_editor):
    """Let PostgreSQL use this index only where the state is asked for: it has all rows, as no state is null.

    A vacuum of an empty queue, as it mostly is, leaves the planner with a table of no rows. It would then look up rows
    by their seq, the last column, reading all of this index for each."""
    _make(schema_editor, " WHERE state IS NOT NULL")


def make_whole(apps, schema_editor):
    _make(schema_editor, "")


class Migration(migrations.Migration):
    dependencies = [("djqueue", "0003_history")]

    operations = [migrations.RunPython(make_partial, make_whole)]
