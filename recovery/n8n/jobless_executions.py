"""Marks in the state store, with the time since which executions of n8n have been seen without a job.

Neither n8n's database nor its queue tells it: a job that is gone leaves nothing behind. The first reading that finds
such an execution leaves a mark, for the execution as it was then: started again, it gets another one. Marks are signed,
because they decide whether an execution is old enough to be repaired.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import redis

from recovery import signing
from recovery.backends.redis_common import decode
from recovery.domain.identifiers import decode_name
from recovery.domain.n8n.comparison import JobExecutionPair, N8nComparison
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.mismatches import MismatchKind
from recovery.domain.time_units import DAY
from recovery.stores.redis import redis_errors
from recovery.stores.state import state_keys

_KEEP_S = 7 * 86_400
_PURPOSE = "execution without a job"


def first_seen(store: redis.Redis, name: str, alone: Sequence[Execution], now: int) -> dict[str, int]:
    """Returns by execution since when it has been seen without a job; those not seen so before are marked now. Raises
    StoreError.
    """
    if not alone:
        return {}
    return _marked(store, name, [(one, now) for one in alone], now)


def _marked(store: redis.Redis, name: str, seen: Sequence[tuple[Execution, int]], now: int) -> dict[str, int]:
    """Marks executions and returns when each was first seen without a job; an earlier mark of the same one counts."""
    fields = [_field(name, one) for one, _ in seen]
    sealed = {field: _sealed(field, at) for field, (_, at) in zip(fields, seen, strict=True)}
    with redis_errors.guarded(store), store.pipeline(transaction=False) as pipeline:
        for field in fields:
            pipeline.hsetnx(state_keys.N8N_ALONE, field, sealed[field])
        pipeline.expire(state_keys.N8N_ALONE, _KEEP_S)
        pipeline.hmget(state_keys.N8N_ALONE, fields)
        found = cast("list[bytes | None]", pipeline.execute()[-1])
    marks = {field: _moment(field, mark) for field, mark in zip(fields, found, strict=True)}
    if foreign := {field: sealed[field] for field, at in marks.items() if at is None}:
        with redis_errors.guarded(store):
            store.hset(state_keys.N8N_ALONE, mapping=cast("dict[Any, Any]", foreign))
    return {one.id: min(now, marks[field] or now) for field, (one, _) in zip(fields, seen, strict=True)}


def _sealed(field: str, at: int) -> bytes:
    return signing.seal(_PURPOSE, b"%d" % at, field)


def _moment(field: str, mark: bytes | None) -> int | None:
    """Returns the time in a mark; None for one without a valid signature of ours."""
    return decode.moment(signing.unseal(_PURPOSE, mark, field))


def remember(store: redis.Redis, truths: Iterable[N8nComparison]) -> None:
    """Marks what the leader's comparisons found, so that an operator who acts on it later need not wait. Raises
    StoreError.
    """
    for truth in truths:
        if truth.fault:
            continue
        seen = [
            (pair.execution, _since(pair, truth.checked_at))
            for pair in truth.pairs
            if pair.execution and not (pair.claim and pair.claim.is_live)
        ]
        if seen:
            _marked(store, truth.name, seen, truth.checked_at)
        _forget(store, truth, {_field(truth.name, one) for one, _ in seen})


def _forget(store: redis.Redis, truth: N8nComparison, listed: set[str]) -> None:
    """Deletes marks that are older than a day and not listed any more."""
    with redis_errors.guarded(store):
        marks = cast("Mapping[bytes, bytes]", store.hgetall(state_keys.N8N_ALONE))
    old = [
        field
        for field, mark in ((decode_name(field), mark) for field, mark in marks.items())
        if field.startswith(f"{truth.name}:") and field not in listed
        and truth.checked_at - (_moment(field, mark) or 0) > DAY
    ]  # fmt: skip
    if old:
        with redis_errors.guarded(store):
            store.hdel(state_keys.N8N_ALONE, *old)


def _since(pair: JobExecutionPair, now: int) -> int:
    """Returns when this execution was first found without a job, where its finding has that time; else the time of this
    comparison.
    """
    finding = pair.finding
    if finding is None or finding.kind not in (MismatchKind.NO_JOB, MismatchKind.DEAD_PARENT) or finding.since is None:
        return now
    return finding.since


def _field(name: str, one: Execution) -> str:
    return f"{name}:{one.id}:{one.status}:{one.started_at}"
