"""Searches one state, slice by slice: Redis has no index of names or payloads, so each job is read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from recovery.backends.base import LIST_LIMIT, TEXT_LIMIT, CommandClient
from recovery.backends.redis_common import decode, job_rows
from recovery.backends.redis_common.layout import QueueContext, StatePlace
from recovery.backends.redis_common.paging import pages
from recovery.backends.redis_common.paging.types import JobIdEntry
from recovery.backends.redis_common.paging.windows import window
from recovery.backends.redis_common.payloads import fetch, lengths
from recovery.domain.jobs import JobRow, JobSearchSlice

# Fifty payloads of at most 64 KB are 3 MB in one reply: no queue's server feels that.
STEP = 50
BUDGET = 5000  # jobs of one slice at most, whatever is asked for
_NAME_BYTES = 1024
_FIELDS = (b"name", b"data")


class SearchTerms(NamedTuple):
    """Terms of a search. The name is compared without case, the payload byte for byte."""

    name: str
    texts: tuple[bytes, ...]

    @classmethod
    def of(cls, name: str, data: str) -> SearchTerms:
        """Returns the terms as typed: a payload may hold a text as it is, or escaped as some JSON writers do."""
        plain = data.encode("utf-8", "surrogateescape")
        escaped = json.dumps(data)[1:-1].encode() if data else b""
        return cls(name.casefold(), tuple({plain, escaped}) if data else ())

    def fits(self, name: str, data: bytes | None) -> bool:
        if self.name and self.name not in name.casefold():
            return False
        return not self.texts or (data is not None and any(text in data for text in self.texts))


def run(
    wire: CommandClient, context: QueueContext, place: StatePlace, wanted: SearchTerms, *, cursor: str, budget: int
) -> JobSearchSlice:
    """Searches one slice. It stops after `budget` jobs, or when a page of hits is full."""
    hits: list[JobRow] = []
    examined = skipped = 0
    total: int | None = None
    budget = max(1, min(budget, BUDGET))
    while True:
        size = min(STEP, budget - examined)
        seen = window(wire, context, place, cursor=cursor, size=size)
        total = seen.total if total is None else total
        fitting, unread = _fitting(wire, context, wanted, seen.entries)
        hits += pages.drop_moved(wire, context, place, job_rows.read(wire, context, place.state, fitting))
        examined, skipped, cursor = examined + len(seen.entries), skipped + unread, seen.next
        if not cursor or examined >= budget or len(hits) >= LIST_LIMIT:
            return JobSearchSlice(tuple(hits), examined, total, cursor, skipped)


def _fitting(
    wire: CommandClient, context: QueueContext, wanted: SearchTerms, entries: Sequence[JobIdEntry]
) -> tuple[list[JobIdEntry], int]:
    """Returns the entries that fit, and how many payloads were too long to be compared."""
    if not entries:
        return [], 0
    keys = [context.keys.job(entry.id) for entry in entries]
    sizes = wire.call([command for key in keys for command in lengths(key, _FIELDS)])
    limits = (_NAME_BYTES, TEXT_LIMIT if wanted.texts else 0)
    names = [_readable(sizes[at * 2 : at * 2 + 2], limits) for at in range(len(keys))]
    asked = [fetch(key, fields) for key, fields in zip(keys, names, strict=True) if fields]
    replies = iter(wire.call(asked) if asked else ())
    values = [
        dict(zip(fields, decode.fields(next(replies), len(fields)), strict=True)) if fields else {} for fields in names
    ]
    found = [entry for entry, value in zip(entries, values, strict=True) if _is_hit(wanted, value)]
    skipped = sum((decode.count(size) or 0) > TEXT_LIMIT for size in sizes[1::2]) if wanted.texts else 0
    return found, skipped


def _readable(sizes: Sequence[Any], limits: tuple[int, int]) -> tuple[bytes, ...]:
    return tuple(
        field
        for field, size, limit in zip(_FIELDS, sizes, limits, strict=True)
        if 0 < (decode.count(size) or 0) <= limit
    )


def _is_hit(wanted: SearchTerms, value: dict[bytes, Any]) -> bool:
    return wanted.fits(decode.name(value.get(b"name")), decode.octets(value.get(b"data")))
