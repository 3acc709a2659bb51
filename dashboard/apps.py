"""Defines the Django application of the web interface."""

from __future__ import annotations

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in
from django.http import HttpRequest


class Dashboard(AppConfig):
    name = "dashboard"
    verbose_name = "Unstall"

    def ready(self) -> None:
        """Registers the checks and what each log-in does. Nothing is started here."""
        from dashboard import checks  # noqa: F401, PLC0415 - it reads settings that are complete only now

        user_logged_in.connect(_log_in, dispatch_uid="unstall.log-in")


def _log_in(sender: object, request: HttpRequest, **_: object) -> None:
    """Records a log-in in the session: that the password was just given, and the session's first use."""
    from dashboard.accounts import reauthentication, sessions  # noqa: PLC0415 -- after the apps are loaded

    reauthentication.note(request)
    sessions.note_use(request, is_first=True)
