"""Keeps the newest comparison of each n8n in the state store, for the pages: compressed JSON in one key."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import astuple, fields
from functools import lru_cache
from typing import Any

import redis

from recovery import shared_clock
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.jobs import JobLock, JobState
from recovery.domain.n8n.comparison import JobExecutionPair, MismatchFinding, N8nComparison, N8nRelease
from recovery.domain.n8n.error_rates import ErrorRate
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair
from recovery.errors import ConfigError, StoreError
from recovery.stores.redis import redis_errors
from recovery.stores.registry import registry
from recovery.stores.state import documents, size_limits, state_keys
from recovery.stores.state.shared_read import windows

_PURPOSE = "n8n truths"
_KEEP_S = 7 * 86_400
_BROKEN = (ValueError, TypeError, IndexError, KeyError, AttributeError)
# A reader of another version knows by this that it cannot read it.
_SHAPE = zlib.crc32(
    ",".join(
        field.name
        for kind in (N8nComparison, JobExecutionPair, N8nJob, Execution, MismatchFinding, ErrorRate)
        for field in fields(kind)
    ).encode()
)
OLD_MS = 180_000  # six comparisons at their usual interval: an older one is not current


def publish(store: redis.Redis, truths: Sequence[N8nComparison]) -> None:
    """Stores the comparisons as the newest; raises StoreError."""
    packed = encode(truths)
    with redis_errors.guarded(store):
        store.set(state_keys.N8N, packed, ex=_KEEP_S)


def fetch(store: redis.Redis) -> tuple[N8nComparison, ...]:
    """Returns the newest comparison of each installation; () if this version can read none. Raises StoreError."""
    with redis_errors.guarded(store):
        packed = size_limits.string_of(size_limits.ask_string(store, state_keys.N8N))
    return decode(packed) if packed is not None else ()


def newest() -> tuple[N8nComparison, ...]:
    """Returns the newest comparisons, read from the state store at most once a second; () if it does not answer."""
    try:
        return windows.get(("n8n",), lambda: fetch(registry().state()))
    except (ConfigError, StoreError):
        return ()


def fresh_comparison(ref: QueueRef) -> N8nComparison | None:
    """Returns the newest comparison of the n8n that owns this queue; None if it is old or failed."""
    found = next((truth for truth in newest() if truth.owns(ref)), None)
    return found if found is not None and not found.fault and not is_old(found) else None


def repairs(ref: QueueRef) -> dict[str, Action]:
    """Returns the action that fits each job of this queue in the newest comparison, by job."""
    truth = fresh_comparison(ref)
    listed = ((pair.claim, pair.finding) for pair in (truth.pairs if truth else ()))
    return {
        claim.job.id: finding.repair.of_job
        for claim, finding in listed
        if claim and finding and finding.repair.of_job and claim.is_live and claim.job.queue == ref
    }


def is_old(truth: N8nComparison, now: int | None = None) -> bool:
    return (shared_clock.now() if now is None else now) - truth.checked_at > OLD_MS


def encode(truths: Sequence[N8nComparison]) -> bytes:
    """Encodes the comparisons; takes about 10 ms for a thousand pairs."""
    document = [_SHAPE, [_truth(truth) for truth in truths]]
    return documents.pack(_PURPOSE, document)


@lru_cache(maxsize=2)  # it is fetched once a second, and changes twice a minute
def decode(packed: bytes) -> tuple[N8nComparison, ...]:
    """Inverts `encode`; returns () for a document that this version did not write."""
    try:
        shape, written = documents.unpack(_PURPOSE, packed)
        return tuple(map(_read_truth, written)) if shape == _SHAPE else ()
    except _BROKEN:
        return ()


def _truth(truth: N8nComparison) -> dict[str, Any]:
    told = {field.name: getattr(truth, field.name) for field in fields(truth)}
    told["queue"] = [truth.queue.deployment, truth.queue.base]
    told["pairs"], told["matching"] = [_pair(pair) for pair in truth.pairs], [_pair(pair) for pair in truth.matching]
    told["error_rates"] = None if truth.error_rates is None else [astuple(rate) for rate in truth.error_rates]
    return told | {"counts": dict(truth.counts), "young": dict(truth.young)}


def _read_truth(written: dict[str, Any]) -> N8nComparison:
    counts = {MismatchKind(kind): count for kind, count in written["counts"].items()}
    pairs, matching = (tuple(map(_read_pair, written[name])) for name in ("pairs", "matching"))
    rates = written["error_rates"]
    known = {"queue": QueueRef(*written["queue"]), "release": N8nRelease(written["release"]), "counts": counts}
    known |= {"error_rates": None if rates is None else tuple(ErrorRate(*rate) for rate in rates)}
    return N8nComparison(**(written | known | {"pairs": pairs, "matching": matching, "notes": tuple(written["notes"])}))


def _pair(pair: JobExecutionPair) -> list[Any]:
    claim = astuple(pair.claim) if pair.claim else None
    execution = astuple(pair.execution) if pair.execution else None
    return [pair.id, claim, execution, astuple(pair.finding) if pair.finding else None, pair.title]


def _read_pair(written: list[Any]) -> JobExecutionPair:
    id, claim, execution, finding, title = written
    found = _read_finding(finding) if finding else None
    return JobExecutionPair(
        id, _read_claim(claim) if claim else None, _read_execution(execution) if execution else None, found, title
    )


def _read_claim(written: list[Any]) -> N8nJob:
    ((deployment, base), id), where, execution, workflow, lock, *rest = written
    job = JobRef(QueueRef(deployment, base), id)
    return N8nJob(job, JobState(where), execution, workflow, JobLock(*lock) if lock else None, *rest)


def _read_execution(written: list[Any]) -> Execution:
    id, workflow, mode, stands, *rest = written
    return Execution(id, workflow, mode, ExecutionStatus(stands), *rest)


def _read_finding(written: list[Any]) -> MismatchFinding:
    kind, repair, since, evidence, *rest = written
    return MismatchFinding(MismatchKind(kind), MismatchRepair(repair), since, tuple(evidence), *rest)
