"""Reads job schedulers (BullMQ ≥ 5.16) and repeatable jobs (older, and Bull): what will be added, and when next."""

from __future__ import annotations

import re
from typing import Any

from recovery.backends.base import LIST_LIMIT, Command, CommandClient
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.layout import QueueContext
from recovery.backends.redis_common.payloads import ByteBudget, fetch, lengths
from recovery.backends.redis_common.reply_errors import check_id_lengths, raise_if_refused
from recovery.domain.identifiers import decode_name
from recovery.domain.jobs import SchedulerRow

# The template of a job (`data`, `opts`) is left where it is.
_FIELDS = (b"name", b"pattern", b"tz", b"every", b"ic", b"limit", b"endDate")
_MD5 = re.compile(r"[0-9a-f]{32}")
_BYTES = 1024  # of one field; a cron pattern or a name that is longer is none


def read(wire: CommandClient, context: QueueContext, size: int) -> tuple[SchedulerRow, ...]:
    """Reads schedulers by next run, soonest first."""
    size = max(1, min(size, LIST_LIMIT))
    (reply,) = wire.call([(b"ZRANGE", context.keys.repeat, 0, size - 1, b"WITHSCORES")])
    raise_if_refused(reply, context.ref, b"ZRANGE")
    found = decode.pairs(reply)
    check_id_lengths((id for id, _ in found), context.ref, context.keys.repeat)
    hashes = _hashes(wire, context, [id for id, _ in found])
    return tuple(
        _row(context, id, decode.score(score), fields) for (id, score), fields in zip(found, hashes, strict=True)
    )


def _hashes(wire: CommandClient, context: QueueContext, ids: list[bytes]) -> list[dict[bytes, Any]]:
    """Returns the short fields of each; empty where there is no hash, as with all older ones."""
    if not ids:
        return []
    keys = [context.keys.scheduler(id) for id in ids]
    sizes = wire.call([command for key in keys for command in lengths(key, _FIELDS)])
    width = len(_FIELDS)
    wanted = [
        tuple(ByteBudget(_BYTES * width, _BYTES).affordable(_FIELDS, sizes[at * width : (at + 1) * width]))
        for at in range(len(keys))
    ]
    asked: list[Command] = [fetch(key, names) for key, names in zip(keys, wanted, strict=True) if names]
    replies = iter(wire.call(asked) if asked else ())
    return [
        dict(zip(names, decode.fields(next(replies), len(names)), strict=True)) if names else {} for names in wanted
    ]


def _row(context: QueueContext, id: bytes, score: float | None, fields: dict[bytes, Any]) -> SchedulerRow:
    next_at = decode.moment(int(score)) if score is not None and abs(score) < decode.LAST_MOMENT else None
    if not fields:
        return _legacy(context, decode_name(id), next_at)
    return SchedulerRow(
        queue=context.ref,
        id=decode_name(id),
        name=decode.name(fields.get(b"name")),
        pattern=decode.prose(fields.get(b"pattern")),
        every=decode.integer(fields.get(b"every")),
        timezone=decode.prose(fields.get(b"tz")),
        next_at=next_at,
        runs=decode.integer(fields.get(b"ic")),
        limit=decode.integer(fields.get(b"limit")),
        ends_at=decode.moment(fields.get(b"endDate")),
    )


def _legacy(context: QueueContext, id: str, next_at: int | None) -> SchedulerRow:
    """Parses `name:jobId:endDate:tz:cron`, read from the right: names may hold colons, what follows them may not.

    With an interval in place of the cron pattern, Bull leaves out the time zone and BullMQ leaves it empty.
    """
    row = SchedulerRow(queue=context.ref, id=id, next_at=next_at)
    tail = id.rpartition(":")[2]
    is_interval = tail.isascii() and tail.isdigit() and len(tail) < 16
    behind = 2 if is_interval and not context.layout.repeat_has_zone else 3
    head, *rest = id.rsplit(":", behind)
    if len(rest) < behind or ":" not in head or _MD5.fullmatch(id):
        return row
    return SchedulerRow(
        queue=context.ref,
        id=id,
        name=head.rpartition(":")[0],
        pattern="" if is_interval else tail,
        every=int(tail) if is_interval else None,
        timezone="" if len(rest) == 2 else rest[1],
        next_at=next_at,
        ends_at=decode.moment(rest[0].encode("utf-8", "surrogateescape")),
    )
