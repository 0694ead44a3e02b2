from django.apps import AppConfig


class TroubleConfig(AppConfig):
    name = "trouble"
