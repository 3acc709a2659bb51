"""Body of an audit entry: the options of an action, and each job before and after, bounded and without secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from recovery.actions.precheck import PrecheckedJob
from recovery.domain.actions.types import ActionCommand, ActionOptions, ExpectedJob, ScriptOutcome, affected_json
from recovery.domain.jobs import JobRow
from recovery.domain.redaction import redact
from recovery.domain.stuck.types import Verdict

TEXT_LIMIT = 200  # characters of a failure's reason: enough to tell it from others
_FACTS = (
    *("added_at", "processed_at", "finished_at", "due_at", "priority"),
    *("attempts", "starts", "stalls", "worker", "scheduler", "parent"),
)


@lru_cache(maxsize=2_000)
def _redacted(text: str) -> str:
    """Redacts a text, from a cache: the jobs of one order have the same names, and are stuck for the same reasons."""
    return redact.text(text)


def intent(order: ActionCommand, options: ActionOptions, judged: Sequence[PrecheckedJob]) -> dict[str, Any]:
    """Returns the body of an intent: the jobs it will be tried on, as they are."""
    jobs = [_before(one) for one in judged if one.judgement.is_allowed]
    return queue_body(order, options) | {"jobs": jobs}


def queue_body(order: ActionCommand, options: ActionOptions) -> dict[str, Any]:
    """Returns the body of an intent for an action on the queue itself."""
    return {"options": changed_options(options)} | ({} if order.epoch is None else {"epoch": order.epoch})


def outcome(done: Iterable[ScriptOutcome], kept: Mapping[str, str], after: Mapping[str, JobRow]) -> dict[str, Any]:
    """Returns the body of an outcome: the result of each job, how it is now, and the digest of what is kept of it."""
    return {"jobs": [_after(one, kept, after.get(one.id)) for one in done]}


def changed_options(options: ActionOptions) -> dict[str, Any]:
    """Returns the options that differ from their defaults."""
    usual = asdict(ActionOptions())
    return {name: value for name, value in asdict(options).items() if value != usual[name] and name != "affected"}


def job_facts(row: JobRow) -> dict[str, Any]:
    """Returns the fields that tell how a job stood; nothing of its payload."""
    facts: dict[str, Any] = {"state": row.state, "name": _redacted(row.name)}
    facts |= {name: value for name in _FACTS if (value := getattr(row, name))}
    if row.reason:
        facts["reason"] = redact.text(row.reason)[:TEXT_LIMIT]
    if row.lock:
        facts["lock"] = {"token": row.lock.token, "ttl": row.lock.ttl}
    if row.missing:
        facts["missing"] = True
    return facts


def seen_facts(seen: ExpectedJob) -> dict[str, Any]:
    return {name: value for name, value in seen.as_json().items() if value is not None}


def _before(one: PrecheckedJob) -> dict[str, Any]:
    before = job_facts(one.row) if one.row else {}
    told = {"job": one.judgement.id, "before": before}
    if one.judgement.seen:
        told["seen"] = seen_facts(one.judgement.seen)
    if one.standing:
        told["n8n"] = one.standing.as_record()
    told |= affected_json(one.judgement.effects.affected)
    return told | ({"verdict": _verdict(one.verdict)} if one.verdict else {})


def _verdict(verdict: Verdict) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": verdict.kind, "why": _redacted(verdict.why)[:TEXT_LIMIT]}
    return told | ({"quarantined": True} if verdict.is_quarantined else {})


def _after(done: ScriptOutcome, kept: Mapping[str, str], row: JobRow | None) -> dict[str, Any]:
    told: dict[str, Any] = {"job": done.id, "outcome": done.outcome}
    if done.why:
        told["why"] = done.why
    if row is not None:
        told["after"] = job_facts(row)
    elif done.state is not None:
        told["after"] = {"state": done.state}
    if done.id in kept:
        told["kept"] = kept[done.id]
    return told | affected_json(done.affected)
