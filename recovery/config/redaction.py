"""[redaction]: patterns that are hidden or kept beside our own, and values of payloads that are shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recovery.config.schema import REDACTION, SHOWN_VALUES
from recovery.config.validation import ConfigProblems, read_table
from recovery.domain.redaction.operator_patterns import BadPattern, RedactionPatterns, compile_pattern
from recovery.domain.redaction.payload_shape import ShownValues

PATTERNS_LIMIT = 50  # each is looked for in every line
PATHS_LIMIT = 200
PARTS = ("data", "options", "result", "progress")


@dataclass(frozen=True, slots=True)
class RedactionConfig:
    rules: RedactionPatterns = field(default_factory=RedactionPatterns)
    show: tuple[ShownValues, ...] = ()


def read_redaction(written: Mapping[str, Any], folder: Path, problems: ConfigProblems) -> RedactionConfig:
    values = read_table(written, REDACTION, "redaction.", folder, problems)
    hide, keep = (_patterns(values[key], f"redaction.{key}", problems) for key in ("hide", "keep"))
    tables = values["show"] or []
    show = [_shown(table, f"redaction.show[{number}].", folder, problems) for number, table in enumerate(tables, 1)]
    return RedactionConfig(RedactionPatterns(hide, keep), tuple(show))


def _patterns(written: tuple[str, ...], where: str, problems: ConfigProblems) -> tuple[Any, ...]:
    if len(written) > PATTERNS_LIMIT:
        problems.add(
            where, f"has {len(written)} patterns.", f"Write at most {PATTERNS_LIMIT}; one may hold several: a|b."
        )
        return ()
    found = []
    for number, pattern in enumerate(written, 1):
        try:
            found.append(compile_pattern(pattern))
        except BadPattern as bad:
            problems.add(f"{where}[{number}]", str(bad), bad.remedy)
    return tuple(found)


def _shown(table: Mapping[str, Any], where: str, folder: Path, problems: ConfigProblems) -> ShownValues:
    values = read_table(table, SHOWN_VALUES, where, folder, problems)
    paths = tuple(tuple(path.split(".")) for path in values["paths"])
    if not 0 < len(paths) <= PATHS_LIMIT:
        problems.add(f"{where}paths", f"has {len(paths)}.", f'Write 1 to {PATHS_LIMIT} paths, like "data.order.id".')
    for path in paths:
        if path[0] not in PARTS or not all(path):
            remedy = f"Begin with {', '.join(PARTS[:-1])} or {PARTS[-1]}, then write keys: data.items.*.sku."
            problems.add(f"{where}paths", f"has {'.'.join(path)!r}.", remedy)
    return ShownValues(tuple(values["queues"]), paths)
