"""Loads the configuration for a command, or explains what is missing."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

from recovery.config import Config, current
from recovery.errors import ConfigError
from recovery.processes import up_environment

WRONG_CALL = 2
_NOTHING = (
    "No deployment is configured, and no `manage.py up` runs in {directory}. "
    "Set UNSTALL_REDIS_URL, or write unstall.toml (docs/configuration.md)."
)


def load_configuration() -> Config:
    """Returns the configuration, with at least one deployment. Raises CommandError with the status of a wrong call."""
    directory = Path(settings.DATA_DIR)
    try:
        up_environment.adopt(directory)
        config = current()
    except ConfigError as error:
        raise CommandError(str(error), returncode=WRONG_CALL) from error
    if not config.places:
        raise CommandError(_NOTHING.format(directory=directory), returncode=WRONG_CALL)
    return config
