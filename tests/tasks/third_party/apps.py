from django.apps import AppConfig


class ThirdPartyConfig(AppConfig):
    name = "tests.tasks.third_party"

    def ready(self):
        from tests.tasks.third_party import lock_step

        lock_step.install()
