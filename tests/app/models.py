from django.db import models


class Thing(models.Model):
    """Something for commands to read, change and delete."""

    name = models.CharField(max_length=100)
    number = models.IntegerField(default=0)

    def __str__(self):
        return self.name
