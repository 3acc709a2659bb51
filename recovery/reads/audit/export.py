"""Exports the audit entry by entry: JSON for programs, CSV for spreadsheets, never all of it in memory."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from recovery.domain.identifiers import printable
from recovery.reads.audit.chain_entries import AuditChainEntry, walk_entries

FORMATS = ("json", "csv")
CONTENT_TYPES = {"json": "application/json", "csv": "text/csv; charset=utf-8"}
_COLUMNS = (
    *("number", "at", "phase", "intent", "actor_kind", "actor", "role", "address", "act"),
    *("deployment", "base", "reason", "body", "previous", "hash", "seal"),
)
# A spreadsheet runs a cell that begins with one of these as a formula; the full-width ones in East Asian locales.
# In locales with a decimal comma a cell ends at a semicolon, within quotes too.
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@\t\r\n|%\uff1d\uff0b\uff0d\uff20])")


def export(form: str = "json") -> Iterator[str]:
    """Yields pieces of text, in the chain's order. As JSON it is one array; `body` in it stays the hashed text."""
    return _csv() if form == "csv" else _json()


def _json() -> Iterator[str]:
    between = "[\n"
    for entry in walk_entries():
        yield between + json.dumps(_members(entry), ensure_ascii=True)
        between = ",\n"
    yield "[]\n" if between == "[\n" else "\n]\n"


def _csv() -> Iterator[str]:
    yield _row(_COLUMNS)
    for entry in walk_entries():
        members = _members(entry)
        yield _row(tuple(_cell(members[name]) for name in _COLUMNS))


def _members(entry: AuditChainEntry) -> dict[str, Any]:
    return asdict(entry.link) | {"hash": entry.hash, "seal": entry.seal}


def _row(cells: tuple[str, ...]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue()


def _cell(value: Any) -> str:
    """Puts an apostrophe before text that looks like a formula: every spreadsheet then treats it as text."""
    if value is None:
        return ""
    if isinstance(value, int):
        return str(value)
    return _FORMULA.sub(r"\1'", printable(value))
