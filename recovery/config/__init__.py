"""Configuration by the operator, read once from TOML and the environment into frozen values."""

from __future__ import annotations

import os
from functools import cache

from recovery.config.databases import Columns, Database, Engine, States, Table
from recovery.config.loading import load, load_described
from recovery.config.n8n import N8n
from recovery.config.urls import hidden
from recovery.config.values import Address, Config, Deployment, Login, Mode, Thresholds, Tls
from recovery.domain import redact

__all__ = [
    "Address",
    "Columns",
    "Config",
    "Database",
    "Deployment",
    "Engine",
    "Login",
    "Mode",
    "N8n",
    "States",
    "Table",
    "Thresholds",
    "Tls",
    "current",
    "hidden",
    "load",
    "load_described",
]


@cache
def current() -> Config:
    """Returns the configuration of this process, whose patterns redaction uses from then on.

    `current.cache_clear()` makes the next call read it again.
    """
    loaded = load(os.environ)
    redact.use(loaded.redaction.rules)
    return loaded
