"""Decodes replies of a store: any bytes come in, no exception goes out. None means: not there, or not known."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recovery.backends.base import LINE_LIMIT
from recovery.domain import bounded_json
from recovery.domain.identifiers import decode_name

# The libraries pack a time and a counter into one score: ms * 4096 + counter.
DELAY_FACTOR = 4096
# A time after the year 9999 is garbage, and would break every calendar on its way to the screen.
LAST_MOMENT = 253_402_300_799_000
_WHOLE = re.compile(rb"-?[0-9]{1,18}")
_TOO_LONG = re.compile(r"\([\d,]+ bytes, too long to show here\)")
_DECIMAL = re.compile(rb"-?[0-9]{1,18}(\.[0-9]{1,20})?")


def octets(reply: Any) -> bytes | None:
    """Returns a string reply as bytes, however the client hands it over."""
    if isinstance(reply, bytes):
        return reply
    if isinstance(reply, str):
        return reply.encode("utf-8", "surrogateescape")
    return None


def count(reply: Any) -> int | None:
    """Returns the length of something; a refused or misplaced command leaves it unknown."""
    return reply if type(reply) is int else None


def integer(reply: Any) -> int | None:
    """Returns a whole number as the libraries write it; JavaScript now and then leaves a fraction."""
    if reply is None or type(reply) is int:
        return reply
    raw = octets(reply)
    if raw is not None and raw.isdigit() and len(raw) <= 18:
        return int(raw)
    if raw is None or not _DECIMAL.fullmatch(raw):
        return None
    return int(raw) if _WHOLE.fullmatch(raw) else int(float(raw))


def moment(reply: Any) -> int | None:
    """Returns a time in milliseconds since 1970 that a calendar can hold."""
    return as_moment(integer(reply))


def as_moment(value: int | None) -> int | None:
    """Returns the number if it is a time that a calendar can hold, else None."""
    return value if value is not None and 0 < value <= LAST_MOMENT else None


def score(reply: Any) -> float | None:
    """Returns the score of a sorted set's member."""
    if isinstance(reply, (int, float)):
        return float(reply)
    raw = octets(reply)
    try:
        value = float(raw) if raw is not None else math.nan
    except ValueError:
        return None
    return None if math.isnan(value) else value


def due(packed: float | None) -> int | None:
    """Returns when a delayed job becomes runnable, from its score."""
    if packed is None or not math.isfinite(packed):
        return None
    return moment(int(packed) // DELAY_FACTOR)


def remaining(reply: Any) -> int | None:
    """Returns the milliseconds left of a key; None when there is none, or when it never ends."""
    return reply if type(reply) is int and reply >= 0 else None


def items(reply: Any) -> list[bytes]:
    """Returns the members of an array reply; an error or a null has none."""
    if not reply or not isinstance(reply, (list, tuple, set, frozenset)):
        return []
    return [raw for raw in map(octets, reply) if raw is not None]


def fields(reply: Any, width: int) -> Sequence[Any]:
    """Returns the answer of HMGET, or as many None when it was refused."""
    if isinstance(reply, (list, tuple)) and len(reply) == width:
        return reply
    return (None,) * width


def pairs(reply: Any) -> list[tuple[bytes, Any]]:
    """Returns member and score, or field and value: flat in RESP2, nested in RESP3, a mapping from some clients."""
    if not reply:
        return []
    return [(raw, value) for member, value in _couples(reply) if (raw := octets(member)) is not None]


def _couples(reply: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(reply, Mapping):
        yield from reply.items()
    elif isinstance(reply, (list, tuple)):
        if all(isinstance(entry, (list, tuple)) and len(entry) == 2 for entry in reply):
            yield from ((entry[0], entry[1]) for entry in reply)
        else:
            yield from zip(reply[::2], reply[1::2], strict=False)


def refusal(reply: Any) -> str:
    """Returns why a command was refused, as a sentence; "" when it was not."""
    return str(reply) if isinstance(reply, Exception) else ""


def is_wrong_type(reply: Any) -> bool:
    """Returns True if the key is there, and holds something else."""
    return "WRONGTYPE" in refusal(reply)


def name(reply: Any) -> str:
    """Returns an id, a name or a key, losing no byte."""
    raw = octets(reply)
    return "" if raw is None else decode_name(raw)


def prose(reply: Any) -> str:
    """Returns a text for people: undecodable bytes replaced."""
    raw = octets(reply)
    return "" if raw is None else raw.decode("utf-8", "replace")


def line(written: str, limit: int = LINE_LIMIT) -> str:
    """Returns a text in one line, cut where a table ends."""
    # Four times the limit is enough to fold from; a text that is blank for so long has nothing to show.
    folded = " ".join(written[: limit * 4].split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def first_line(written: str, limit: int = LINE_LIMIT) -> str:
    """Returns the first line that is not blank."""
    return line(next((row for row in written.splitlines() if row.strip()), ""), limit)


def too_long(size: int) -> str:
    """Returns what is shown in place of a text that was not fetched."""
    return f"({size:,} bytes, too long to show here)"


def is_too_long(written: str) -> bool:
    """Returns True if it stands in place of a text that was not fetched."""
    return bool(_TOO_LONG.fullmatch(written))


def from_json(reply: Any) -> Any:
    """Returns what a JSON text holds; None when it holds nothing, or is no JSON."""
    raw = octets(reply)
    if raw is None:
        return None
    try:
        return bounded_json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def mapping(reply: Any) -> Mapping[str, Any]:
    """Returns a JSON object, or an empty one."""
    value = from_json(reply)
    return value if isinstance(value, dict) else {}


def times(reply: Any) -> tuple[int | None, int | None, int | None]:
    """Returns the answer to `age_plan`: (timestamp, processedOn, delay)."""
    added, processed, delay = fields(reply, 3)
    return moment(added), moment(processed), integer(delay)
