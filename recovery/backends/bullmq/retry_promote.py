"""Retries and promotes jobs: both move from one set to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from recovery.backends.base import TEXT_LIMIT, Target
from recovery.backends.bullmq import scripts
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.scripts import Answer
from recovery.backends.bullmq.versions import BullMQTraits
from recovery.backends.redis_common import decode, script_reads
from recovery.backends.redis_common.script_batches import TOGETHER, failure
from recovery.domain.actions.types import ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobState
from recovery.stores.redis.scripts import Part

# So many jobs one script moves: about 1 ms.
SCRIPT_JOBS = 50
# BullMQ 3 keeps prioritized jobs in order in the list itself, and searches it for each.
SEARCHING_JOBS = 10

_MISSING = "The job is gone: there is no such job any more."
_ELSEWHERE = "Its parent lives on another node of the cluster, which one script cannot reach."
_BOOKS = "The key that lists its parent's children has an unexpected type, so nothing was changed."


def retry(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
) -> tuple[ScriptOutcome, ...]:
    """Runs failed or completed jobs once more, keeping their priority and their parent's lists of children."""
    refused = {seen.id: _not_in(seen, "failed and completed", "retried") for seen in jobs if not seen.state.is_finished}
    plans = _plans(target, traits, [seen for seen in jobs if seen.id not in refused])
    refused |= {
        id: ScriptOutcome(id, Outcome.REFUSED, _ELSEWHERE, plan.seen.state) for id, plan in plans.items() if plan.is_far
    }
    near = [plan for plan in plans.values() if not plan.is_far]
    head = (traits.for_script(), int(options.reset_attempts), int(options.reset_stalls))
    answers = _run(target, traits, "retry-jobs", head, [plan.part() for plan in near])
    return _dones(target, jobs, refused, [plan.seen for plan in near], answers)


def promote(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
) -> tuple[ScriptOutcome, ...]:
    """Makes delayed jobs run now."""
    delayed = {seen.id: seen for seen in jobs if seen.state is JobState.DELAYED}
    refused = {seen.id: _not_in(seen, "delayed", "promoted") for seen in jobs if seen.state is not JobState.DELAYED}
    queue = BullMQKeys(target.ref.base)
    parts = [
        ((queue.job(encode_name(id)),), (encode_name(id), *scripts.seen_args(seen))) for id, seen in delayed.items()
    ]
    answers = _run(target, traits, "promote-jobs", (traits.for_script(),), parts)
    return _dones(target, jobs, refused, list(delayed.values()), answers)


_Part = tuple[tuple[Part, ...], tuple[Part, ...]]  # what one job adds to the keys and to the arguments of a script


def _run(target: Target, traits: BullMQTraits, name: str, head: Sequence[Part], parts: Sequence[_Part]) -> list[Answer]:
    """Runs a few scripts, none of them long."""
    size = SCRIPT_JOBS if traits.has("has_prioritized") else SEARCHING_JOBS
    queue = scripts.queue_keys(target.ref.base)
    some = [parts[at : at + size] for at in range(0, len(parts), size)]
    runs = [
        (
            (*queue, *chain.from_iterable(keys for keys, _ in part)),
            (*head, *chain.from_iterable(args for _, args in part)),
        )
        for part in some
    ]
    widths = list(map(len, some))
    together = TOGETHER if traits.has("has_prioritized") else 1  # those that search are long ones
    return scripts.run_each_word(target, name, runs, widths, together)


# Words of the scripts for a job that may run, and what they mean.
_RUNNABLE = {state.value: state for state in (JobState.WAITING, JobState.PAUSED, JobState.PRIORITIZED)}


class _Plan(NamedTuple):
    """Plan of how one job is retried: what is decided outside the script."""

    seen: ExpectedJob
    key: bytes
    push: str
    parent: bytes
    is_far: bool

    def part(self) -> _Part:
        about = (encode_name(self.seen.id), self.seen.state.value, self.push, int(bool(self.parent)))
        return (self.key, self.parent or self.key), (*about, *scripts.seen_args(self.seen))


def _plans(target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob]) -> dict[str, _Plan]:
    """Reads parents, and the options that are not beyond all measure, in one round trip."""
    keys = [BullMQKeys(target.ref.base).job(encode_name(seen.id)) for seen in jobs]
    ids = [encode_name(seen.id) for seen in jobs]
    read = script_reads.fields(target, ids, (b"parentKey", b"opts"), longest=TEXT_LIMIT, most=2 * TEXT_LIMIT)
    plans = {}
    for seen, key, fields in zip(jobs, keys, read, strict=True):
        push = "RPUSH" if decode.mapping(fields.get(b"opts")).get("lifo") is True else "LPUSH"
        known = fields.get(b"parentKey", b"") if traits.has("puts_children_back") else b""
        plans[seen.id] = _Plan(seen, key, push, known, bool(known) and scripts.is_elsewhere(target, known))
    return plans


def _not_in(seen: ExpectedJob, wanted: str, act: str) -> ScriptOutcome:
    return ScriptOutcome(seen.id, Outcome.REFUSED, f"Only {wanted} jobs are {act}; it is {seen.state}.", seen.state)


def _dones(
    target: Target,
    jobs: Sequence[ExpectedJob],
    refused: Mapping[str, ScriptOutcome],
    tried: Sequence[ExpectedJob],
    answers: Sequence[Answer],
) -> tuple[ScriptOutcome, ...]:
    """Returns one answer a job, in the order in which they were asked for."""
    known = dict(refused)
    words = {seen.id: word for seen, word in zip(tried, answers, strict=True)}
    known |= scripts.explain_moved(target, [seen for seen in tried if words[seen.id] == "moved"])
    for seen in tried:
        if seen.id not in known:
            known[seen.id] = _done(seen, words[seen.id])
    return tuple(known[seen.id] for seen in jobs)


def _done(seen: ExpectedJob, word: Answer) -> ScriptOutcome:
    if failed := failure(seen, word):
        return failed
    if word in _RUNNABLE:
        return ScriptOutcome(seen.id, Outcome.DONE, state=_RUNNABLE[word])
    if word == "missing":
        return ScriptOutcome(seen.id, Outcome.MISSING, _MISSING)
    return ScriptOutcome(seen.id, Outcome.REFUSED, _BOOKS, seen.state)
