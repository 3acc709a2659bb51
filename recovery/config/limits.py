"""[thresholds] and [[queues]]: from when on something is wrong with a job, for all queues and for some."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recovery.config.readers import Problems, read_table
from recovery.config.schema import QUEUE, THRESHOLDS
from recovery.config.values import Thresholds

Key = tuple[str, str]  # deployment ("": any) and base


def read_thresholds(written: Mapping[str, Any], folder: Path, problems: Problems) -> Thresholds:
    values = read_table(written, THRESHOLDS, "thresholds.", folder, problems)
    return Thresholds(_ms(values["stalled_interval"]), _ms(values["overdue_after"]) or None)


def read_queues(
    tables: list[Mapping[str, Any]], common: Thresholds, folder: Path, problems: Problems
) -> dict[Key, Thresholds]:
    """What a table leaves out is as it is for all."""
    found: dict[Key, Thresholds] = {}
    for number, table in enumerate(tables, 1):
        where = f"queues[{number}]."
        values = read_table(table, QUEUE, where, folder, problems)
        deployment, slash, base = values["name"].partition("/")
        key = (deployment, base) if slash else ("", deployment)
        if not key[1]:
            problems.add(f"{where}name", "is missing.", 'Write DEPLOYMENT/BASE or BASE, like "shop/bull:mail".')
        elif key in found:
            problems.add(f"{where}name", f"is {values['name']!r} a second time.", "Write one table for each queue.")
        found[key] = Thresholds(
            _ms(values["stalled_interval"]) or common.stalled_interval,
            _ms(values["overdue_after"]) or common.overdue_after,
        )
    return found


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
