"""Runs the scheduler process, which collects, discovers and records until a signal ends it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from recovery.config import current
from recovery.errors import ConfigError
from recovery.scheduler.process import run
from recovery.stores.state.sync_client import state_deployment

WRONG_CALL = 2


class Command(BaseCommand):
    help = "Run the scanners that feed the pages. Shuts down cleanly on SIGTERM; a second signal exits immediately."
    requires_system_checks = ()

    def handle(self, *_: Any, **__: Any) -> None:
        try:
            config = current()
            state_deployment(config)
        except ConfigError as error:
            raise CommandError(str(error), returncode=WRONG_CALL) from error
        run(config)
