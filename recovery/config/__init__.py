"""Configuration by the operator, read once from TOML and the environment into frozen values."""

from __future__ import annotations

import os
from functools import cache

from recovery.config.addresses.redis_urls import hidden
from recovery.config.databases import Database, Engine, JobTable, TableColumns, TableStates
from recovery.config.loader import load, load_described
from recovery.config.n8n import N8nInstallation
from recovery.config.types import Config, Deployment, DeploymentMode, ServerAddress, StoreLogin, Thresholds, Tls
from recovery.domain.redaction import redact

__all__ = [
    "Config",
    "Database",
    "Deployment",
    "DeploymentMode",
    "Engine",
    "JobTable",
    "N8nInstallation",
    "ServerAddress",
    "StoreLogin",
    "TableColumns",
    "TableStates",
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
    redact.use_patterns(loaded.redaction.rules)
    return loaded
