from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("djqueue", "0004_partial_index")]

    operations = [
        migrations.CreateModel(
            name="Dashboard",
            fields=[("name", models.CharField(max_length=255, primary_key=True, serialize=False, verbose_name="name"))],
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
    ]
