from django.db import migrations, models

import djqueue.models


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
    ]
