"""The Django application of the face."""

from __future__ import annotations

from django.apps import AppConfig


class Dashboard(AppConfig):
    name = "dashboard"
    verbose_name = "Unstall"

    def ready(self) -> None:
        """Registers the checks. Nothing is started here."""
        from dashboard import checks  # noqa: F401, PLC0415 - it reads settings that are complete only now
