"""Whether the data of jobs breaks the JSON Schema of their queue. Only what is certain is said: data that is too long
or too deep is not judged, and no sentence ever holds a value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fastjsonschema import JsonSchemaValueException

from recovery.backends.base import Command, Wire
from recovery.backends.shared import decode, payloads
from recovery.backends.shared.keys import Keys
from recovery.config.schemas import Schema
from recovery.domain import redact
from recovery.domain.refs import QueueRef, raw, shown

DATA_LIMIT = 64 * 1024  # bytes: longer data would cost more time than a verdict is worth
TURN_BYTES = 1024 * 1024  # of data read in one go: a few milliseconds of the server's time
PATH_LIMIT = 120  # characters of a path: its names may come from the data
NAMES_LIMIT = 5  # missing properties that are named
_NUMBER_LIMIT = 400  # digits: above that JavaScript reads infinity, and Python refuses
_NAMES = (b"data",)
_NO_DATA = b"{}"  # what the libraries read where a job has none


def broken(wire: Wire, ref: QueueRef, ids: Iterable[str], schema: Schema) -> dict[str, str]:
    """What breaks, for those of these jobs whose data breaks the schema. They have to exist. Raises StoreError."""
    wanted = list(dict.fromkeys(ids))
    keys = Keys(ref.base)
    found: dict[str, str] = {}
    sizes = _sizes(wire, keys, wanted)
    for part in _turns(sizes):
        for id, data in zip(part, _data(wire, keys, part), strict=True):
            if data is not None and (said := breaks(schema, data)):
                found[id] = said
    empty = [id for id, size in sizes.items() if size == 0]
    if empty and (said := breaks(schema, _NO_DATA)):
        found |= dict.fromkeys(empty, said)
    return found


def breaks(schema: Schema, data: bytes) -> str:
    """One sentence; "" when the data is as it should be, or nothing certain can be said."""
    try:
        parsed = json.loads(data.decode("utf-8", "replace"), parse_int=_whole, parse_constant=_refuse)
        schema.check(parsed)
    except JsonSchemaValueException as error:
        return f"Its data breaks the schema of its queue: {_where(error)} {_what(error)}."
    except json.JSONDecodeError:
        return "Its data breaks the schema of its queue: it is not JSON."
    except Exception:  # noqa: BLE001 -- data may be anything; what cannot be judged is not said to be wrong
        return ""
    return ""


def _sizes(wire: Wire, keys: Keys, ids: Sequence[str]) -> dict[str, int]:
    """Of those that can be measured."""
    asked = [command for id in ids for command in payloads.lengths(keys.job(raw(id)), _NAMES)]
    replies = wire.call(asked) if asked else []
    measured = zip(ids, map(decode.count, replies), strict=True)
    return {id: size for id, size in measured if size is not None and size <= DATA_LIMIT}


def _turns(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    part: list[str] = []
    total = 0
    for id, size in sizes.items():
        if not size:
            continue
        if part and total + size > TURN_BYTES:
            yield part
            part, total = [], 0
        part.append(id)
        total += size
    if part:
        yield part


def _data(wire: Wire, keys: Keys, ids: Sequence[str]) -> list[bytes | None]:
    asked: list[Command] = [(b"HGET", keys.job(raw(id)), *_NAMES) for id in ids]
    return [decode.octets(reply) for reply in wire.call(asked)]


def _whole(written: str) -> int | float:
    return int(written) if len(written) <= _NUMBER_LIMIT else float(written)


def _refuse(written: str) -> Any:
    """NaN and the infinities, which only Python takes for JSON."""
    raise json.JSONDecodeError("no JSON", written, 0)


def _where(error: JsonSchemaValueException) -> str:
    path = redact.text(shown(error.name or "data"))
    return path if len(path) <= PATH_LIMIT else f"{path[:PATH_LIMIT]}…"


def _what(error: JsonSchemaValueException) -> str:
    """In words of the schema alone."""
    rule, asked = error.rule, error.rule_definition
    if rule == "type":
        return f"must be {' or '.join(asked) if isinstance(asked, list) else asked}"
    if rule == "required" and isinstance(error.value, dict) and isinstance(asked, list):
        missing = [shown(str(name)) for name in asked if name not in error.value]
        more = f" and {len(missing) - NAMES_LIMIT:,} more" if len(missing) > NAMES_LIMIT else ""
        return f"must have {', '.join(missing[:NAMES_LIMIT])}{more}"
    if rule == "additionalProperties":
        return "has a property that is not allowed"
    if rule == "enum":
        return "must be one of the values that the schema lists"
    return f"does not keep to {rule}" if rule else "is not as it should be"
