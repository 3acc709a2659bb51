"""Plans what failing a job directly does, before the script runs: its options are parsed here, never in Lua.

What is read here does not change while a job is active, but for its parent's key, which the script compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from recovery.backends.base import TEXT_LIMIT, Target
from recovery.backends.bullmq import deduplication, parent_failure, scripts
from recovery.backends.bullmq.deduplication import Follower
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.parent_failure import Ancestor, ParentChain
from recovery.backends.bullmq.versions import BullMQTraits
from recovery.backends.redis_common import decode, script_reads
from recovery.backends.redis_common.json_numbers import whole
from recovery.domain.actions.types import ActionOptions, ExpectedJob, JobSideEffect, RelativeChange
from recovery.domain.identifiers import QueueRef, decode_name, encode_name
from recovery.stores.redis.scripts import Part

_Fields = Mapping[bytes, Any]
_FIELDS = (b"opts", b"parent", b"parentKey", b"deid", b"stacktrace")
_JOB_BYTES = 4 * TEXT_LIMIT  # of one job; its stack traces are what does not fit first

_UNREADABLE = "Its options cannot be read, so the effect of its failure on other jobs is unknown."
_UNTOLD = (
    "Its parent still waits for it: this BullMQ version does not notify a parent of a child that stalled too often."
)
OTHERS = "Its failure changes jobs of other queues: its parent, or jobs that wait for it. This needs other_queues."
_GROWN = "Its flow has grown since it was read. Try again."
_FOLLOWER = "The job that follows it would be recorded with a parent in another queue that does not list it."
_ELSEWHERE = "Its parent lives on another node of the cluster, which one script cannot reach."


@dataclass(frozen=True, slots=True)
class FailedRetention:
    """Option `removeOnFail` of a job. Without one the worker's own decides, which is not known here: it is kept."""

    is_kept: bool = True
    count: int | None = None  # of failed jobs, the newest
    age: int | None = None  # of failed jobs, seconds


@dataclass(frozen=True, slots=True)
class FailPlan:
    """Plan of how one job fails; `refusal` says why it cannot."""

    seen: ExpectedJob
    parent: bytes = b""  # full key
    dedup: bytes = b""
    traces: str = ""  # "" leaves them as they are
    limit: int = 0
    follower: Follower = deduplication.NONE
    keep: FailedRetention = FailedRetention()
    parents: tuple[Ancestor, ...] = ()
    refusal: str = ""
    note: str = ""  # what the operator should know of it


def plans(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, reason: str
) -> tuple[FailPlan, ...]:
    """Plans each failure: one round trip, two for a job that another follows or that has a parent, and one for each
    generation above that would fail, too.
    """
    is_stall = not options.directly
    read = _read(target, jobs)
    lines = parent_failure.read_chains(target, traits, [seen.id for seen in jobs], read, is_stall=is_stall)
    dedups = [b"" if is_stall else decode.octets(fields.get(b"deid")) or b"" for fields in read]
    found = map(_Found, jobs, read, lines, deduplication.read(target, traits, dedups))
    return tuple(_within(target, _plan(target, one, reason, is_stall=is_stall), options) for one in found)


def affected(target: Target, parents: Sequence[Ancestor]) -> tuple[JobSideEffect, ...]:
    """Returns what the failure does to these parents."""
    return tuple(
        JobSideEffect(
            QueueRef(target.ref.deployment, decode_name(one.base)).job(decode_name(one.id)),
            RelativeChange.FAILED if one.option == "fpof" else RelativeChange.RELEASED,
        )
        for one in parents
    )


def _within(target: Target, plan: FailPlan, options: ActionOptions) -> FailPlan:
    """Refuses a plan that reaches into another queue, or further than when its family was looked at."""
    base = encode_name(target.ref.base)
    if not options.other_queues and any(one.base != base for one in plan.parents):
        return replace(plan, refusal=plan.refusal or OTHERS)
    failed = {str(one.job) for one in affected(target, plan.parents) if one.change is RelativeChange.FAILED}
    if options.affected is not None and not failed <= options.affected:
        return replace(plan, refusal=plan.refusal or _GROWN)
    return plan


def arguments(
    traits: BullMQTraits, chosen: Iterable[FailPlan], options: ActionOptions, reason: str, now: int
) -> list[Part]:
    """Returns the arguments of `fail-jobs.lua`."""
    how = "direct" if options.directly else "stall"
    args: list[Part] = [traits.for_script(), now, reason.encode("utf-8", "replace"), how, int(options.other_queues)]
    for plan in chosen:
        keep = plan.keep
        args += (
            encode_name(plan.seen.id),
            *scripts.seen_args(plan.seen),
            plan.parent,
            plan.dedup,
            plan.traces,
            plan.limit,
        )
        args += plan.follower.arguments()
        args += ("keep" if keep.is_kept else "drop", _or_empty(keep.count), _or_empty(keep.age), len(plan.parents))
        for parent in plan.parents:
            args += (parent.option, parent.base, parent.id, parent.key, parent.dedup)
    return args


def keys(target: Target, chosen: Iterable[FailPlan]) -> tuple[bytes, ...]:
    """Returns the keys beside the queue's and the jobs' own: as many as are known beforehand."""
    queue = BullMQKeys(target.ref.base)
    near = [parent.key for plan in chosen for parent in plan.parents]
    return (queue.metrics(b"failed"), queue.metrics_points(b"failed"), *dict.fromkeys(near))


def _read(target: Target, jobs: Sequence[ExpectedJob]) -> Sequence[_Fields]:
    """Reads the fields of each job; one that is too long to be fetched is there, and empty."""
    ids = [encode_name(seen.id) for seen in jobs]
    return script_reads.fields(target, ids, _FIELDS, longest=TEXT_LIMIT, most=_JOB_BYTES)


class _Found(NamedTuple):
    """Fields of one job, its parents and the job that follows it."""

    seen: ExpectedJob
    fields: _Fields
    line: ParentChain
    follower: Follower


def _plan(target: Target, found: _Found, reason: str, *, is_stall: bool) -> FailPlan:
    seen, fields, line, follower = found
    options = decode.from_json(fields.get(b"opts", b"{}"))
    if not isinstance(options, dict) or not follower.is_readable:
        return FailPlan(seen, refusal=_UNREADABLE)
    keep = _keep(options.get("removeOnFail"), is_stall=is_stall)
    parent = decode.octets(fields.get(b"parentKey")) or b""
    reached = [one.key for one in line.parents] + ([] if keep.is_kept or not parent else [parent])
    is_far = follower.is_far or any(scripts.is_elsewhere(target, key) for key in reached)
    return FailPlan(
        seen,
        parent,
        decode.octets(fields.get(b"deid")) or b"",
        "" if is_stall else _traces(fields.get(b"stacktrace"), options, reason),
        whole(options.get("attempts")) or 0,
        follower,
        keep,
        line.parents,
        line.refusal or (_ELSEWHERE if is_far else _FOLLOWER if follower.is_foreign else ""),
        _UNTOLD if is_stall and line.is_untold else "",
    )


def _keep(written: Any, *, is_stall: bool) -> FailedRetention:
    """Reads the option as the library does; but for `0`, with which its stalled check removes all failed jobs."""
    if written is True or (written == 0 and written is not False):
        return FailedRetention(is_kept=False)
    if isinstance(written, dict):
        count, age = whole(written.get("count")), whole(written.get("age"))
        if count == 0 and not is_stall:
            return FailedRetention(is_kept=False)
        return FailedRetention(count=count if count and count > 0 else None, age=age)
    count = whole(written)
    return FailedRetention(count=count if count and count > 0 else None)


def _traces(written: Any, options: Mapping[str, Any], reason: str) -> str:
    """Returns the traces with one more entry, as a failed attempt adds one; "" leaves unreadable ones alone."""
    known = [] if written is None else decode.from_json(written)
    if not isinstance(known, list):
        return ""
    limit = whole(options.get("stackTraceLimit"))
    traces = [*known, reason]
    return json.dumps(traces[-limit:] if limit and limit > 0 else traces)


def _or_empty(value: int | None) -> Part:
    return "" if value is None else value
