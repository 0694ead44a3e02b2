from django.apps import AppConfig


class TryItConfig(AppConfig):
    name = "tryit"
