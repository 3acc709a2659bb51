"""Reads a job's parent and children, perhaps in other queues, with where each of them is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recovery.backends.base import Command, CommandClient
from recovery.backends.bullmq import children
from recovery.backends.bullmq.job_keys import split
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.redis_common import decode, job_location
from recovery.backends.redis_common.keys import Keys
from recovery.backends.redis_common.layout import Layout, QueueContext
from recovery.backends.redis_common.payloads import ByteBudget, fetch, lengths
from recovery.domain.identifiers import JobRef, decode_name, encode_name
from recovery.domain.jobs import JobFamily, JobRelative, JobState

# How deep the lists of each relative's queue are searched. A hundred children, three lists each, a thousand deep are
# ten milliseconds of the server's time, spread over three hundred commands; deeper down a state stays unknown.
_DEPTH = 1000
_FIELDS = (b"parentKey", b"parent")
_FIELD_BYTES = 4096
_NAME_BYTES = 1024


def read(wire: CommandClient, context: QueueContext, id: bytes) -> JobFamily:
    """Reads the family in a handful of round trips, however many relatives there are."""
    parent, hints = _parent(wire, context.keys.job(id))
    listed, total = children.read(wire, BullMQKeys(context.ref.base), id)
    keys = [key for key, _ in listed] + ([parent] if parent else [])
    jobs = split(wire, context.ref, keys, hints)
    known = _known(wire, context.layout, [job for job in jobs.values() if job is not None])
    relatives = [_relative(key, outcome, jobs[key], known) for key, outcome in listed]
    above = _relative(parent, "", jobs[parent], known) if parent else None
    return JobFamily(above, tuple(relatives), total)


def _parent(wire: CommandClient, job: bytes) -> tuple[bytes, Mapping[bytes, str]]:
    """Returns the parent's key, and its queue when the job says which: `parent` has it as JSON, apart from the id."""
    sizes = wire.call(lengths(job, _FIELDS))
    names = tuple(ByteBudget(_FIELD_BYTES * 2, _FIELD_BYTES).affordable(_FIELDS, sizes))
    if not names:
        return b"", {}
    (reply,) = wire.call([fetch(job, names)])
    fields = dict(zip(names, decode.fields(reply, len(names)), strict=True))
    key = decode.octets(fields.get(b"parentKey")) or b""
    queue, id = map(decode.mapping(fields.get(b"parent")).get, ("queueKey", "id"))
    is_whole = isinstance(queue, str) and isinstance(id, str) and _raw(f"{queue}:{id}") == key
    return key, {key: queue} if is_whole and isinstance(queue, str) else {}


def _raw(name: str) -> bytes:
    """Encodes a name from JSON, which may hold half a surrogate pair, of which no key can be made."""
    return name.encode("utf-8", "replace")


def _known(wire: CommandClient, layout: Layout, jobs: Sequence[JobRef]) -> dict[JobRef, tuple[JobState, str]]:
    """Returns state and name of each, in two round trips."""
    commands = [command for job in jobs for command in _ask(layout, job)]
    replies = wire.call(commands) if commands else []
    width = len(layout.places) + 1
    parts = [replies[at * width : (at + 1) * width] for at in range(len(jobs))]
    names = _names(wire, jobs, [part[-1] for part in parts])
    return {
        job: (job_location.location_from(layout.places, part[:-1]).state, name)
        for job, part, name in zip(jobs, parts, names, strict=True)
    }


def _ask(layout: Layout, job: JobRef) -> list[Command]:
    context, id = QueueContext(job.queue, Keys(job.queue.base), layout), encode_name(job.id)
    places = [job_location.ask(context, place, id, _DEPTH) for place in layout.places]
    return [*places, *lengths(context.keys.job(id), (b"name",))]


def _names(wire: CommandClient, jobs: Sequence[JobRef], sizes: Sequence[Any]) -> list[str]:
    short = [0 < (decode.count(size) or 0) <= _NAME_BYTES for size in sizes]
    asked: list[Command] = [
        (b"HGET", Keys(job.queue.base).job(encode_name(job.id)), b"name")
        for job, fits in zip(jobs, short, strict=True)
        if fits
    ]
    replies = iter(wire.call(asked) if asked else ())
    return [decode.name(next(replies)) if fits else "" for fits in short]


def _relative(
    key: bytes, outcome: str, job: JobRef | None, known: Mapping[JobRef, tuple[JobState, str]]
) -> JobRelative:
    """Returns a relative. A child that failed and is still pending is marked failed: its parent waits for ever."""
    state, name = known[job] if job is not None else (JobState.UNKNOWN, "")
    if outcome == "pending" and state is JobState.FAILED:
        outcome = "failed"
    return JobRelative(job, decode_name(key), outcome, state, name)
