"""[thresholds] and [[queues]]: limits from which on a job is overdue or stale, for all queues and for some, and the
JSON Schema of a queue's data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from recovery.config.payload_schemas import PayloadSchema, read_schema
from recovery.config.schema import QUEUE, THRESHOLDS
from recovery.config.types import Thresholds
from recovery.config.validation import ConfigProblems, read_table

Key = tuple[str, str]  # deployment ("": any) and base


class QueueSettings(NamedTuple):
    """Settings of single queues."""

    thresholds: dict[Key, Thresholds]
    schemas: dict[Key, PayloadSchema]


def read_thresholds(written: Mapping[str, Any], folder: Path, problems: ConfigProblems) -> Thresholds:
    values = read_table(written, THRESHOLDS, "thresholds.", folder, problems)
    stalled, overdue, stale = (_ms(values[name]) for name in ("stalled_interval", "overdue_after", "stale_after"))
    return Thresholds(stalled, overdue or None, stale)


def read_queues(
    tables: list[Mapping[str, Any]], common: Thresholds, folder: Path, problems: ConfigProblems
) -> QueueSettings:
    """Reads [[queues]]; a key that a table leaves out has the value of all queues."""
    found = QueueSettings({}, {})
    for number, table in enumerate(tables, 1):
        where = f"queues[{number}]."
        values = read_table(table, QUEUE, where, folder, problems)
        deployment, slash, base = values["name"].partition("/")
        key = (deployment, base) if slash else ("", deployment)
        if not key[1]:
            problems.add(f"{where}name", "is missing.", 'Write DEPLOYMENT/BASE or BASE, like "shop/bull:mail".')
        elif key in found.thresholds:
            problems.add(f"{where}name", f"is {values['name']!r} a second time.", "Write one table for each queue.")
        found.thresholds[key] = Thresholds(
            _ms(values["stalled_interval"]) or common.stalled_interval,
            _ms(values["overdue_after"]) or common.overdue_after,
            common.stale_after,
        )
        if schema := read_schema(values["schema"], f"{where}schema", problems):
            found.schemas[key] = schema
    return found


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
