"""Helps workers written in Python that take jobs from a table: one call at their start.

    from recovery.worker import sweep_at_start

    sweep_at_start("app/imports", owner="importer-1")

It needs only this package: no settings, no database and no server of Unstall. Rows that this worker left running when
it died are requeued with one attempt more, or fail if their attempts are used up.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings

from recovery.backends.job_tables.sweep import SweepTrigger, Swept, sweep
from recovery.config import Config, current, load_described
from recovery.domain.identifiers import QueueRef
from recovery.errors import BadOrder, Unsupported
from recovery.stores.sql.sql_client import SqlClient

__all__ = ["Swept", "sweep_at_start"]

MOST = 1_000_000  # rows; more than any table has running


def sweep_at_start(
    table: str,
    *,
    owner: str = "",
    url: str = "",
    described: Mapping[str, Any] | None = None,
    most: int = MOST,
) -> Swept:
    """Requeues or fails the rows that a dead worker left running; returns and logs how many.

    `table` is DATABASE/TABLE as in unstall.toml (UNSTALL_CONFIG), or, with `url`, a table of that database: then its
    columns and values are `described` with the keys of [[tables]], as in `{"state": "status", "queued": "pending"}`.

    `owner` limits it to rows of this owner, and is required if several workers share the table. Without it, all running
    rows are taken, except those whose lease or heartbeat shows a live worker.

    Call it before the worker takes its first row. Raises ConfigError, Missing, BadOrder, Unsupported and StoreError.
    """
    _configure()
    config, ref = _described(url, table, described or {}) if url else _configured(table, described or {})
    place = next((database for database in config.databases if database.name == ref.deployment), None)
    if place is None:
        config.deployment(ref.deployment)
        raise Unsupported(f"{ref.deployment} is not a database.")
    wire = SqlClient(place, config.tables_of(place.name))
    try:
        return sweep(wire, ref, SweepTrigger(is_start=True, owner=owner), most)
    finally:
        wire.close()


def _configured(table: str, described: Mapping[str, Any]) -> tuple[Config, QueueRef]:
    if described:
        raise BadOrder("Describe a table here only together with the url of its database.")
    if "/" not in table:
        raise BadOrder("Write DATABASE/TABLE, as named in unstall.toml, or give the url of the database.")
    return current(), QueueRef.parse(table)


def _described(url: str, table: str, described: Mapping[str, Any]) -> tuple[Config, QueueRef]:
    config = load_described(url, {"table": table, **described}, Path.cwd())
    return config, QueueRef(config.tables[0].database, config.tables[0].name)


def _configure() -> None:
    """Configures Django for its database backends, unless settings are there already."""
    if not settings.configured and "DJANGO_SETTINGS_MODULE" not in os.environ:
        settings.configure(USE_TZ=True)
        apps.populate(())
