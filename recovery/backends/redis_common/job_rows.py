"""Reads rows of a list: named fields of each job, and no more bytes than a screen has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode, locks
from recovery.backends.redis_common.layout import QueueContext
from recovery.backends.redis_common.paging.types import JobIdEntry
from recovery.backends.redis_common.payloads import ByteBudget, fetch, lengths
from recovery.domain.identifiers import decode_name
from recovery.domain.jobs import JobRow, JobState

# A row shows 300 characters of a text. One of more than 16 KB is not fetched for that, and a page of a hundred rows
# moves 2 MB at most, however long the errors and results are.
TEXT_BYTES = 16 * 1024
PAGE_BYTES = 2 * 1024 * 1024

NUMBERS = (
    *(b"timestamp", b"processedOn", b"finishedOn", b"delay", b"priority"),
    *(b"atm", b"attemptsMade", b"ats", b"stc", b"stalledCounter"),
)
# In the order in which the page's budget is spent: what tells the job first, what it carried last.
TEXTS = (b"name", b"opts", b"pb", b"rjk", b"parentKey", b"failedReason", b"progress", b"returnvalue")
SIZES = (*TEXTS, b"data")
_NAME, _DATA = SIZES.index(b"name"), SIZES.index(b"data")


class ScriptJobReply(NamedTuple):
    """Answer of `look-at-job.lua`. `place`: number of the place in the layout, 0 for none, -1 for not searched."""

    place: int
    score: Any
    numbers: Any
    sizes: Sequence[Any]
    texts: Sequence[Any]  # of TEXTS; None for what is empty or too long
    token: Any
    ttl: Any


@dataclass(slots=True)
class _Draft:
    """Job while it is being read."""

    entry: JobIdEntry
    numbers: Sequence[Any]
    sizes: Mapping[bytes, Any]
    lock: tuple[Any, Any] | None
    missing: bool
    texts: dict[bytes, Any] = field(default_factory=dict)


def read(wire: CommandClient, context: QueueContext, state: JobState, entries: Sequence[JobIdEntry]) -> list[JobRow]:
    """Reads all of them in two round trips: numbers and lengths, then the texts that fit."""
    drafts = _drafts(wire, context, state, entries)
    budget = ByteBudget(PAGE_BYTES, TEXT_BYTES)
    wanted = [tuple(budget.affordable(TEXTS, [draft.sizes[name] for name in TEXTS])) for draft in drafts]
    asked = [(draft, names) for draft, names in zip(drafts, wanted, strict=True) if names]
    if asked:
        replies = wire.call([fetch(context.keys.job(draft.entry.id), names) for draft, names in asked])
        for (draft, names), reply in zip(asked, replies, strict=True):
            draft.texts = dict(zip(names, decode.fields(reply, len(names)), strict=True))
    return [_row(context, state, draft) for draft in drafts]


def of_script(context: QueueContext, state: JobState, entry: JobIdEntry, look: ScriptJobReply) -> JobRow:
    """Returns the row of a job that a script read."""
    lock = (look.token, look.ttl) if state is JobState.ACTIVE else ()
    draft = _draft(entry, (look.numbers, *look.sizes, *lock))
    draft.texts = {name: text for name, text in zip(TEXTS, look.texts, strict=True) if text is not None}
    return _row(context, state, draft, is_one_moment=True)


def is_old_marker(context: QueueContext, row: JobRow) -> bool:
    """Returns True for a `0` alone, which BullMQ < 3.1.3 wrote; if an application calls a job so, there is a job."""
    return context.layout.has_markers and row.missing and row.id == "0"


def _drafts(wire: CommandClient, context: QueueContext, state: JobState, entries: Sequence[JobIdEntry]) -> list[_Draft]:
    with_lock = state is JobState.ACTIVE
    width = 1 + len(SIZES) + (locks.WIDTH if with_lock else 0)
    commands = [command for entry in entries for command in _ask(context, entry.id, with_lock=with_lock)]
    replies = wire.call(commands) if commands else []
    return [_draft(entry, replies[at * width : (at + 1) * width]) for at, entry in enumerate(entries)]


def _ask(context: QueueContext, id: bytes, *, with_lock: bool) -> tuple[Command, ...]:
    key = context.keys.job(id)
    asked = (fetch(key, NUMBERS), *lengths(key, SIZES))
    return (*asked, *locks.ask(context.keys, id)) if with_lock else asked


def _draft(entry: JobIdEntry, replies: Sequence[Any]) -> _Draft:
    numbers, rest = replies[0], replies[1:]
    sizes, lock = rest[: len(SIZES)], rest[len(SIZES) :]
    return _Draft(
        entry,
        decode.fields(numbers, len(NUMBERS)),
        dict(zip(SIZES, sizes, strict=True)),
        (lock[0], lock[1]) if lock else None,
        is_missing(numbers, sizes),
    )


def is_missing(numbers: Any, sizes: Sequence[Any]) -> bool:
    """Returns True without a hash, or with the rest of a removed job: a counter or an error, no name, data or time."""
    if decode.is_wrong_type(numbers):
        return True
    if isinstance(numbers, Exception):
        return False
    return decode.fields(numbers, len(NUMBERS))[0] is None and sizes[_NAME] == 0 and sizes[_DATA] == 0


def _row(context: QueueContext, state: JobState, draft: _Draft, *, is_one_moment: bool = False) -> JobRow:
    added, processed, finished, delay, priority, made, old_made, starts, stalls, old_stalls = map(
        decode.integer, draft.numbers
    )
    lock, lock_known = locks.read(*draft.lock) if draft.lock else (None, True)
    finished_at = decode.as_moment(finished)
    if state.is_finished and finished_at is None:
        # Bull < 4.12.6 writes no finishedOn when it fails a stalled job; the score is the same moment.
        finished_at = decode.as_moment(_whole(draft.entry.score))
    return JobRow(
        ref=context.ref.job(decode_name(draft.entry.id)),
        state=state,
        added_at=decode.as_moment(added),
        processed_at=decode.as_moment(processed),
        finished_at=finished_at,
        due_at=decode.due(draft.entry.score) if state is JobState.DELAYED else None,
        delay=delay or 0,
        priority=priority or 0,
        attempts=(old_made if made is None else made) or 0,
        starts=starts,
        stalls=(old_stalls if stalls is None else stalls) or 0,
        data_size=decode.count(draft.sizes[b"data"]),
        lock=lock,
        lock_known=lock_known,
        missing=draft.missing,
        is_one_moment=is_one_moment,
        name=_name(draft, b"name"),
        worker=_name(draft, b"pb"),
        scheduler=_name(draft, b"rjk"),
        parent=_name(draft, b"parentKey"),
        attempts_limit=_attempts_limit(draft.texts.get(b"opts")),
        reason=decode.first_line(_prose(draft, b"failedReason")),
        progress=_empty_as_nothing(decode.line(_prose(draft, b"progress"))),
        result=decode.line(_prose(draft, b"returnvalue")),
    )


@lru_cache(maxsize=256)
def _attempts_limit(options: Any) -> int:
    """Returns the limit that a job's options set. The jobs of a queue are mostly added with the same options."""
    limit = decode.mapping(options).get("attempts")
    return limit if type(limit) is int and limit > 0 else 1


def _name(draft: _Draft, field: bytes) -> str:
    return decode.name(draft.texts[field]) if field in draft.texts else _unread(draft, field)


def _prose(draft: _Draft, field: bytes) -> str:
    return decode.prose(draft.texts[field]) if field in draft.texts else _unread(draft, field)


def _unread(draft: _Draft, field: bytes) -> str:
    """Returns "" when there is nothing; its size when it did not fit."""
    size = decode.count(draft.sizes[field])
    return decode.too_long(size) if size else ""


def _empty_as_nothing(progress: str) -> str:
    """Returns "" for the progress that both libraries write from the start (0)."""
    return "" if progress in ("0", "{}") else progress


def _whole(score: float | None) -> int | None:
    return int(score) if score is not None and abs(score) < decode.LAST_MOMENT else None
