"""Reads active jobs of many queues at once: their ids in windows, who has a lock, and twice those that have none.

Plain commands in long batches: no rights beyond reading, nothing that holds the server. A window is a thousand ids
from the tail of a list, where the oldest jobs stand.

A sure look brackets the list between two reads of each job, all in one pipeline: its fields, its lock, the window,
its lock again, its fields again. A worker of BullMQ ≥ 5 takes a job and its lock in one script, which counts the start.
So when both reads find no lock and the same count of starts, and the list between them has the id, then no worker held
it at the moment of the list: as good as a look in one transaction, and open to an observer who may run no scripts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode, job_rows
from recovery.backends.redis_common.keys import Keys
from recovery.backends.redis_common.layout import Layout, QueueContext
from recovery.backends.redis_common.paging.types import JobIdEntry
from recovery.backends.redis_common.reply_errors import oversized
from recovery.domain.identifiers import QueueRef, decode_name, encode_name
from recovery.domain.jobs import JobLock, JobRow, JobState

WINDOW = 1_000  # ids: below 0.1 ms of the server's time
MARGIN = 500  # ids on both sides when a window is read again: jobs come and go meanwhile
NO_KEY = -2
ENDLESS = -1
NAME_BYTES = 512  # of a worker's name or a parent's key: whatever is longer was not written by a library

_FIELDS = (
    *(b"timestamp", b"processedOn", b"ats", b"atm", b"attemptsMade", b"stc", b"stalledCounter"),
    *(b"pb", b"parentKey"),
)
_TEXTS = (b"name", b"data", b"pb", b"parentKey")


class ActiveWindow(NamedTuple):
    """Part of a queue's active list: `start` ids from its tail on."""

    ref: QueueRef
    start: int = 0


class ActiveSuspect(NamedTuple):
    """Active job that is to be read twice for proof, and the window in which its id was."""

    id: bytes
    window: ActiveWindow


class ActiveJobFacts(NamedTuple):
    """Fields of a job that may make it a suspect."""

    processed_at: int | None
    worker: str
    parent: str
    is_there: bool
    error: str = ""  # its numbers are too long to be read


class ConsistentJobRead(NamedTuple):
    """Result of reading a job twice. `row` has only what a verdict needs; `is_steady`: nothing moved in between."""

    row: JobRow
    is_steady: bool
    error: str = ""  # its numbers are too long to be read

    @property
    def is_sure(self) -> bool:
        """Returns True if no worker held the job."""
        return self.is_steady and self.row.lock_known and self.row.lock is None


def ids(wire: CommandClient, windows: Sequence[ActiveWindow]) -> list[list[bytes] | Exception]:
    """Returns the ids of each window, oldest first; an exception says why a list cannot be read."""
    replies = wire.call([_window(window, 0) for window in windows])
    return [reply if isinstance(reply, Exception) else _plain_ids(reply)[::-1] for reply in replies]


def _plain_ids(reply: Any) -> list[bytes]:
    """Returns the ids of a reply; a list of nothing but bytes, as hiredis hands it over, is taken as it is."""
    return reply if type(reply) is list and set(map(type, reply)) == {bytes} else decode.items(reply)


def ttls(wire: CommandClient, jobs: Sequence[tuple[QueueRef, bytes]]) -> list[int | None]:
    """Returns what is left of each job's lock in ms, NO_KEY or ENDLESS; None where we may not look."""
    keys = _all_keys(ref for ref, _ in jobs)
    asked: list[Command] = [(b"PTTL", keys[ref].lock(id)) for ref, id in jobs]
    return [decode.count(reply) for reply in wire.call(asked)] if asked else []


def all_locked(wire: CommandClient, groups: Sequence[tuple[QueueRef, Sequence[bytes]]]) -> list[bool]:
    """Returns True for each group whose jobs all have a lock: one command a group. A refusal counts as no."""
    asked: list[Command] = []
    for ref, ids in groups:
        prefix = Keys(ref.base).named(b"")
        asked.append((b"EXISTS", *[prefix + id + b":lock" for id in ids]))
    replies = wire.call(asked) if asked else []
    return [decode.count(reply) == len(ids) for reply, (_, ids) in zip(replies, groups, strict=True)]


def starts(wire: CommandClient, jobs: Sequence[tuple[QueueRef, bytes]]) -> list[tuple[int | None, bool]]:
    """Returns when each job was started, and whether it exists: one command each. Another start is another run."""
    keys = _all_keys(ref for ref, _ in jobs)
    asked: list[Command] = [(b"HMGET", keys[ref].job(id), b"processedOn", b"timestamp") for ref, id in jobs]
    found = (_facts(reply, "", "") for reply in (wire.call(asked) if asked else []))
    return [(one.processed_at, one.is_there) for one in found]


def facts(wire: CommandClient, jobs: Sequence[tuple[QueueRef, bytes]]) -> list[ActiveJobFacts]:
    """Reads each job with three short commands, once while it is active; its longer texts are only measured."""
    keys = _all_keys(ref for ref, _ in jobs)
    asked: list[Command] = []
    for ref, id in jobs:
        key = keys[ref].job(id)
        asked += [(b"HMGET", key, b"processedOn", b"timestamp"), *((b"HSTRLEN", key, name) for name in _TEXTS[2:])]
    replies = wire.call(asked)
    sizes = [replies[at + 1 : at + 3] for at in range(0, len(replies), 3)]
    texts = _texts(wire, keys, jobs, sizes)
    return [_facts(replies[3 * at], *texts[at]) for at in range(len(jobs))]


def read_consistently(wire: CommandClient, suspects: Sequence[ActiveSuspect]) -> list[ConsistentJobRead | None]:
    """Reads each suspect twice; None: it is not in its window any more. One round trip, plus one for names."""
    keys = _all_keys(suspect.window.ref for suspect in suspects)
    windows = list(dict.fromkeys(suspect.window for suspect in suspects))
    before = [part for one in suspects for part in _ask(keys[one.window.ref], one.id)]
    after = [part for one in suspects for part in _ask_again(keys[one.window.ref], one.id)]
    replies = wire.call([*before, *(_window(window, MARGIN) for window in windows), *after])
    middle = len(before)
    lists = replies[middle : middle + len(windows)]
    listed = {window: set(decode.items(reply)) for window, reply in zip(windows, lists, strict=True)}
    first = [replies[at : at + _WIDTH] for at in range(0, middle, _WIDTH)]
    rest = replies[middle + len(windows) :]
    second = [rest[at : at + 2] for at in range(0, len(rest), 2)]
    jobs = [(suspect.window.ref, suspect.id) for suspect in suspects]
    texts = _texts(wire, keys, jobs, [reply[3:5] for reply in first])
    return [
        _sight(one, first[at], second[at], texts[at]) if one.id in listed[one.window] else None
        for at, one in enumerate(suspects)
    ]


_NUMBERS = _FIELDS[:7]
_WIDTH = 2 + len(_TEXTS)


def _ask(keys: Keys, id: bytes) -> tuple[Command, ...]:
    key = keys.job(id)
    measured = tuple((b"HSTRLEN", key, name) for name in _TEXTS)
    return (b"HMGET", key, *_NUMBERS), *measured, (b"PTTL", keys.lock(id))


def _ask_again(keys: Keys, id: bytes) -> tuple[Command, ...]:
    return (b"PTTL", keys.lock(id)), (b"HMGET", keys.job(id), *_NUMBERS)


def _sight(
    suspect: ActiveSuspect, first: Sequence[Any], second: Sequence[Any], texts: tuple[str, str]
) -> ConsistentJobRead:
    numbers, name_size, data_size, *_, ttl = first
    ttl_after, numbers_after = second
    lock, is_known = _lock(ttl_after)
    row = JobRow(
        ref=suspect.window.ref.job(decode_name(suspect.id)),
        state=JobState.ACTIVE,
        worker=texts[0],
        parent=texts[1],
        lock=lock,
        lock_known=is_known,
        missing=_is_missing(numbers_after, name_size, data_size),
        **_counted(numbers_after),
    )
    before, was_known = _lock(ttl)
    same_lock = was_known and is_known and (before is None) == (lock is None)
    return ConsistentJobRead(
        row, same_lock and _plain(numbers) == _plain(numbers_after), oversized(numbers, numbers_after)
    )


def _counted(reply: Any) -> dict[str, Any]:
    _, processed, starts, made, old_made, stalls, old_stalls = decode.fields(reply, len(_NUMBERS))
    return {
        "processed_at": decode.moment(processed),
        "starts": decode.integer(starts),
        "attempts": decode.integer(made if made is not None else old_made) or 0,
        "stalls": decode.integer(stalls if stalls is not None else old_stalls) or 0,
    }


def _is_missing(numbers: Any, name_size: Any, data_size: Any) -> bool:
    """Returns True without a hash, or with the rest of a removed job: a counter or an error, no name, data or time."""
    if decode.is_wrong_type(numbers):
        return True
    if isinstance(numbers, Exception):
        return False
    return decode.fields(numbers, len(_NUMBERS))[0] is None and name_size == 0 and data_size == 0


def _lock(ttl: Any) -> tuple[JobLock | None, bool]:
    """Returns the lock without its token, which costs another read and is asked only for the rows that are shown."""
    left = decode.count(ttl)
    if left is None:
        return None, False
    return (None if left == NO_KEY else JobLock("", left if left >= 0 else None)), True


def _facts(reply: Any, worker: str, parent: str) -> ActiveJobFacts:
    processed, added = decode.fields(reply, 2)
    is_there = added is not None or (isinstance(reply, Exception) and not decode.is_wrong_type(reply))
    return ActiveJobFacts(decode.moment(processed), worker, parent, is_there, oversized(reply))


def _texts(
    wire: CommandClient,
    keys: dict[QueueRef, Keys],
    jobs: Sequence[tuple[QueueRef, bytes]],
    sizes: Sequence[Sequence[Any]],
) -> list[tuple[str, str]]:
    """Returns worker and parent of each job, where there is one of a sane length."""
    wanted = [
        (at, column, name)
        for at, measured in enumerate(sizes)
        for column, name in enumerate(_TEXTS[2:])
        if 0 < (decode.count(measured[column]) or 0) <= NAME_BYTES
    ]
    found = [["", ""] for _ in jobs]
    if wanted:
        asked: list[Command] = [(b"HGET", keys[jobs[at][0]].job(jobs[at][1]), name) for at, _, name in wanted]
        for (at, column, _), reply in zip(wanted, wire.call(asked), strict=True):
            found[at][column] = decode.name(reply)
    return [(worker, parent) for worker, parent in found]


def _window(window: ActiveWindow, margin: int) -> Command:
    first, last = max(0, window.start - margin), window.start + WINDOW + margin
    return b"LRANGE", Keys(window.ref.base).active, -last, -(first + 1)


def _plain(reply: Any) -> list[Any] | None:
    return None if isinstance(reply, Exception) else list(reply or ())


def _all_keys(refs: Iterable[QueueRef]) -> dict[QueueRef, Keys]:
    return {ref: Keys(ref.base) for ref in dict.fromkeys(refs)}


def position(wire: CommandClient, ref: QueueRef, wanted: Sequence[str], depth: int = 100_000) -> list[ActiveSuspect]:
    """Returns the windows in which these jobs stand now: for a few rows of a page. LPOS costs 1 ms at that depth."""
    key = Keys(ref.base).active
    replies = wire.call(
        [(b"LPOS", key, encode_name(id), b"RANK", -1, b"MAXLEN", depth) for id in wanted] + [(b"LLEN", key)]
    )
    length = decode.count(replies[-1]) or 0
    places = zip(wanted, map(decode.count, replies[:-1]), strict=True)
    return [
        ActiveSuspect(encode_name(id), ActiveWindow(ref, max(0, length - 1 - index) // WINDOW * WINDOW))
        for id, index in places
        if index is not None
    ]


def details(wire: CommandClient, ref: QueueRef, wanted: Sequence[str]) -> list[JobRow]:
    """Reads what a list shows of these jobs, their locks' tokens with them. Two round trips."""
    context = QueueContext(ref, Keys(ref.base), _ANY)
    return job_rows.read(wire, context, JobState.ACTIVE, [JobIdEntry(encode_name(id)) for id in wanted])


_ANY = Layout(())  # ids are known, so no place is looked into
