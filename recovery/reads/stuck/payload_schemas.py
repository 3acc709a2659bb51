"""Validates the data of jobs against the JSON Schema of their queue. Only certain violations are reported: data that
is too long or too deep is not judged, and no sentence ever holds a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fastjsonschema import JsonSchemaValueException

from recovery.backends.base import CommandClient
from recovery.config.payload_schemas import PayloadSchema
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.redaction import redact
from recovery.reads.queues import payloads

DATA_LIMIT = 64 * 1024  # bytes: longer data would cost more time than a verdict is worth
PATH_LIMIT = 120  # characters of a path: its names may come from the data
NAMES_LIMIT = 5  # missing properties that are named
_NUMBER_LIMIT = 400  # digits: above that JavaScript reads infinity, and Python refuses
_NO_DATA = b"{}"  # what the libraries read where a job has none


def find_violations(wire: CommandClient, ref: QueueRef, ids: Iterable[str], schema: PayloadSchema) -> dict[str, str]:
    """Returns the violation of each job whose data violates the schema. The jobs must exist. Raises StoreError."""
    data = payloads.data(wire, ref, ids, limit=DATA_LIMIT)
    return {id: said for id, one in data if (said := describe_violation(schema, one or _NO_DATA))}


def describe_violation(schema: PayloadSchema, data: bytes) -> str:
    """Describes the violation in one sentence; "" if the data is valid, or cannot be judged with certainty."""
    try:
        parsed = json.loads(data.decode("utf-8", "replace"), parse_int=_whole, parse_constant=_refuse)
        schema.check(parsed)
    except JsonSchemaValueException as error:
        return f"Its data violates the schema of its queue: {_where(error)} {_what(error)}."
    except json.JSONDecodeError:
        return "Its data violates the schema of its queue: it is not JSON."
    except Exception:  # noqa: BLE001 -- data may be anything; what cannot be judged is not reported as wrong
        return ""
    return ""


def _whole(written: str) -> int | float:
    return int(written) if len(written) <= _NUMBER_LIMIT else float(written)


def _refuse(written: str) -> Any:
    """Refuses NaN and the infinities, which only Python accepts as JSON."""
    raise json.JSONDecodeError("no JSON", written, 0)


def _where(error: JsonSchemaValueException) -> str:
    path = redact.text(printable(error.name or "data"))
    return path if len(path) <= PATH_LIMIT else f"{path[:PATH_LIMIT]}…"


def _what(error: JsonSchemaValueException) -> str:
    """Describes the violated rule in words of the schema only."""
    rule, asked = error.rule, error.rule_definition
    if rule == "type":
        return f"must be {' or '.join(asked) if isinstance(asked, list) else asked}"
    if rule == "required" and isinstance(error.value, dict) and isinstance(asked, list):
        missing = [printable(str(name)) for name in asked if name not in error.value]
        more = f" and {len(missing) - NAMES_LIMIT:,} more" if len(missing) > NAMES_LIMIT else ""
        return f"must have {', '.join(missing[:NAMES_LIMIT])}{more}"
    if rule == "additionalProperties":
        return "has a property that is not allowed"
    if rule == "enum":
        return "must be one of the values that the schema lists"
    return f"violates {rule}" if rule else "is invalid"
