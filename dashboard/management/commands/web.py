"""`manage.py web`: serves the pages and the live streams from one process. Run as many as you like."""

from __future__ import annotations

import sys
import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, SystemCheckError

from dashboard import logging_config
from dashboard.asgi import application, hub
from dashboard.server.listen import CannotListen, address, forget, listen
from dashboard.server.uvicorn_server import WebServer, configuration, raise_file_limit
from recovery import config
from recovery.errors import ConfigError, Problem

WRONG_CALL = 2


class Command(BaseCommand):
    help = "Serve the pages and the live streams (UNSTALL_BIND, default 127.0.0.1:8000)."
    requires_system_checks = ()  # run below: wrong configuration must exit with 2, so that systemd does not restart it

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self.check()
            require_state(config.current())
            listener = listen(settings.BIND)
        except (SystemCheckError, ConfigError, CannotListen) as problem:
            self.stderr.write(str(problem))
            sys.exit(WRONG_CALL)
        raise_file_limit()
        self.stdout.write(
            logging_config.line(time.time(), "info", "dashboard", f"Unstall listens on {address(listener)}")
        )
        WebServer(configuration(application, settings.TRUSTED_PROXIES), hub).run([listener])
        forget(settings.BIND)


def require_state(chosen: config.Config) -> None:
    """Raises ConfigError without a state store: only `up` embeds one, and pages show what the scheduler wrote to it."""
    if chosen.state_url is None:
        raise ConfigError(
            (
                Problem(
                    "UNSTALL_STATE_URL",
                    "is not set, and a web process does not start a state store.",
                    "Set it to a Redis or Valkey that holds no queues (redis://host:6379/1), or run `manage.py up`.",
                ),
            )
        )
