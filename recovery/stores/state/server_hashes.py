"""Reads the metrics that a server's monitor wrote, field by field and only as far as they are short.

A monitor writes its own keys and may write anything there. The script looks at sizes before it reads, in the same
moment, so that no server costs the reader more than `FIELD_LIMIT` a field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recovery.domain.servers.samples import FIELDS
from recovery.stores.redis.scripts import script
from recovery.stores.state import state_keys

FIELD_LIMIT = 256 * 1024  # bytes: 64 processes with their commands and some thousand connections
_SCRIPT = script(Path(__file__).parent / "lua" / "read" / "read-short-fields.lua")


def prepare(pipeline: Any) -> None:
    """Makes the script known, before the first `ask` of a pipeline; one more answer."""
    pipeline.execute_command("SCRIPT LOAD", _SCRIPT.text)


def ask(pipeline: Any, server: str, fields: Sequence[str] = FIELDS) -> None:
    """Asks for these fields of a server; one answer, for `row_of` or `fields_of`."""
    pipeline.evalsha(_SCRIPT.digest, 1, state_keys.server_metrics(server), FIELD_LIMIT, *fields)


def row_of(reply: Any, count: int) -> list[bytes | None]:
    """Returns the values in the order in which they were asked; all None where there are none, or too large ones."""
    return reply if isinstance(reply, list) and len(reply) == count else [None] * count


def fields_of(reply: Any, fields: Sequence[str] = FIELDS) -> Mapping[bytes, bytes]:
    """Returns the fields that are there, by their names."""
    row = zip(fields, row_of(reply, len(fields)), strict=True)
    return {name.encode("ascii"): value for name, value in row if value is not None}
