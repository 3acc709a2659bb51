"""The configuration as a command of the shell needs it: with something to look at, or a clear word."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

from recovery.config import Config, current
from recovery.errors import ConfigError
from recovery.processes import beside

WRONG_CALL = 2
_NOTHING = (
    "No deployment is configured, and no `manage.py up` runs in {directory}. "
    "Set UNSTALL_REDIS_URL, or write unstall.toml (docs/configuration.md)."
)


def configured() -> Config:
    """Raises CommandError with the status of a wrong call."""
    directory = Path(settings.DATA_DIR)
    try:
        beside.join(directory)
        config = current()
    except ConfigError as error:
        raise CommandError(str(error), returncode=WRONG_CALL) from error
    if not config.places:
        raise CommandError(_NOTHING.format(directory=directory), returncode=WRONG_CALL)
    return config
