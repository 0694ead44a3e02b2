from django.db import migrations

TABLES = ("djqueue_message", "djqueue_lane", "djqueue_ticket", "djqueue_fact")
OPTIONS = {
    "autovacuum_vacuum_scale_factor": "0",  # not in proportion to the rows: claims pass what was completed
    "autovacuum_vacuum_threshold": "20000",
    "vacuum_index_cleanup": "on",  # also if few pages of the table have anything to remove
    "vacuum_truncate": "off",  # which locks the table, and the next burst needs the pages again
}
"""Storage parameters for tables whose rows live for seconds, beside a backlog that may live for days."""


def _alter(schema_editor, change: str) -> None:
    if schema_editor.connection.vendor == "postgresql":
        for table in TABLES:
            schema_editor.execute(f"ALTER TABLE {table} {change}")


def set_options(apps, schema_editor):
    _alter(schema_editor, f"SET ({', '.join(f'{name} = {value}' for name, value in OPTIONS.items())})")


def reset_options(apps, schema_editor):
    _alter(schema_editor, f"RESET ({', '.join(OPTIONS)})")


class Migration(migrations.Migration):
    dependencies = [("djqueue", "0001_initial")]

    operations = [migrations.RunPython(set_options, reset_options)]
