"""The Django app."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _

from djqueue import conf


class DjqueueConfig(AppConfig):
    name = "djqueue"
    label = "djqueue"
    verbose_name = _("Queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from djqueue.checks import servers, settings, tasks  # noqa: F401  registers them
        from djqueue.discovery import autodiscover

        if conf.task_backends():
            import djqueue.tasks  # noqa: F401  so that its tasks are found, wherever they are declared
        if any(path.startswith("djqueue.middleware.") for path in conf.of_django("MIDDLEWARE")):
            _carry_request_ids()  # in consumers too, which serve no requests
        autodiscover()


def _carry_request_ids() -> None:
    from djqueue.running.instruments import instruments
    from djqueue.running.request_ids import RequestIds

    instruments.add(RequestIds())
