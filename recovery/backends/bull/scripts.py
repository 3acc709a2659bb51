"""Runs scripts on jobs of a Bull queue: what each is given, and what its answers mean in words."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import redis

from recovery.backends.base import Target
from recovery.backends.bull.keys import BullKeys
from recovery.backends.redis_common import decode, fencing
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.backends.redis_common.script_batches import UnsentScript, failure, send_in_batches
from recovery.domain.actions.types import ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobState
from recovery.stores.redis.scripts import Part, Script, script

Each = Callable[[ExpectedJob], Iterable[Part]]
Reading = Callable[[ExpectedJob, Sequence[Any]], ScriptOutcome]

TOGETHER = 5  # runs of 10 or 15 jobs

_FOLDER = Path(__file__).parent / "lua" / "write"
_AGAIN = {
    "processedOn": "It was started again since it was shown.",
    "attemptsMade": "It was retried since it was shown.",
    "stalledCounter": "It was recovered since it was shown.",
}
UNPROVEN = (
    "It has no lock, but that alone is not proof: a worker takes a job and locks it a moment later; try again "
    "when it has had no lock for one stalled interval of the queue."
)
_BARE = "Its job data is missing: there is nothing to run. It can be removed."


@dataclass(frozen=True, slots=True)
class BullScriptCall:
    """Script call for many jobs; `each` gives what follows a job's id, `step` how many jobs one run takes.

    So many runs go out `together`; 0: all of a call. None holds the server for long.
    """

    name: str
    target: Target
    settings: Sequence[Part]
    each: Each
    step: int
    together: int = 0

    def do(
        self, jobs: Sequence[ExpectedJob], against: Mapping[str, ScriptOutcome] | None = None
    ) -> tuple[ScriptOutcome, ...]:
        """Runs the script; one answer a job. Those that something stands `against` already are left out."""
        return self.told(jobs, read, against)

    def told(
        self, jobs: Sequence[ExpectedJob], reading: Reading, against: Mapping[str, ScriptOutcome] | None = None
    ) -> tuple[ScriptOutcome, ...]:
        """Runs the script like `do`, for scripts whose answers say more."""
        refused = against or {}
        answers = iter(self._ask([job for job in jobs if job.id not in refused]))
        return tuple(refused[job.id] if job.id in refused else _done(job, next(answers), reading) for job in jobs)

    def _ask(self, jobs: Sequence[ExpectedJob]) -> list[Any]:
        parts = [jobs[at : at + self.step] for at in range(0, len(jobs), self.step)]
        runs = [self._run_of(part) for part in parts]
        send = partial(_script(self.name).each, self.target.script_wire)
        replies = send_in_batches(self.target, send, runs, self.together or len(runs))
        answers = zip(parts, replies, strict=True)
        return [answer for part, reply in answers for answer in _each_of(part, reply)]

    def _run_of(self, jobs: Sequence[ExpectedJob]) -> tuple[Sequence[Part], Sequence[Part]]:
        keys = BullKeys(self.target.ref.base)
        ids = [encode_name(job.id) for job in jobs]
        own = [key for id in ids for key in (keys.job(id), keys.lock(id))]
        args = [part for job, id in zip(jobs, ids, strict=True) for part in (id, *self.each(job))]
        fence_keys, stamp = fencing.script_part(self.target)
        return [*queue_keys(keys), *own, *fence_keys], [*self.settings, *args, stamp]


def _each_of(jobs: Sequence[ExpectedJob], reply: Any) -> Sequence[Any]:
    """Returns the answer of each job. A run that the store refused has changed nothing; those before it have."""
    if isinstance(reply, redis.ResponseError) and fencing.rival_in(reply) is None:
        return [(b"refused", str(reply).encode())] * len(jobs)
    return [reply] * len(jobs) if isinstance(reply, Exception | UnsentScript) else reply


def _done(job: ExpectedJob, answer: Any, reading: Reading) -> ScriptOutcome:
    return failure(job, answer) or reading(job, answer)


def run(name: str, target: Target, keys: Sequence[Part], args: Sequence[Part]) -> Any:
    """Runs a script and returns its reply. Its own error becomes a StoreError: it checks before its first write.

    Raises Fenced.
    """
    fixed, (fence_keys, stamp) = queue_keys(BullKeys(target.ref.base)), fencing.script_part(target)
    try:
        return _script(name).run(target.script_wire, [*fixed, *keys, *fence_keys], [*args, stamp])
    except redis.ResponseError as refusal:
        fencing.check(refusal)
        raise_if_refused(refusal, target.ref, b"EVALSHA")
        raise


def _script(name: str) -> Script:
    return script(_FOLDER / f"{name}.lua")


def comparison_args(job: ExpectedJob) -> tuple[Part, Part, Part]:
    """Returns what every script compares before it writes."""
    return ("" if job.processed_at is None else job.processed_at, job.attempts, job.stalls)


def counting(options: ActionOptions) -> str:
    """Returns the word for what becomes of the stalled counter."""
    if options.reset_stalls:
        return "forget"
    return "count" if options.counts_as_stall else "keep"


def queue_keys(keys: BullKeys) -> tuple[bytes, ...]:
    """Returns the keys in the order of `lua/write/parts/jobs.lua`. Behind a script's own keys comes the fence."""
    places = (keys.wait, keys.paused, keys.active, keys.delayed, keys.completed, keys.failed)
    return (*places, keys.named(b"priority"), keys.named(b"stalled"), keys.paused_flag, keys.limited)


def refuse(jobs: Iterable[ExpectedJob], why: str) -> dict[str, ScriptOutcome]:
    return {job.id: ScriptOutcome(job.id, Outcome.REFUSED, why, job.state) for job in jobs}


def misplaced(jobs: Iterable[ExpectedJob], wanted: Container[JobState]) -> dict[str, ScriptOutcome]:
    """Returns refusals for jobs that were shown in a state that the act is not for."""
    return {
        job.id: ScriptOutcome(job.id, Outcome.REFUSED, f"It was {job.state} when it was shown.", job.state)
        for job in jobs
        if job.state not in wanted
    }


def read(job: ExpectedJob, answer: Sequence[Any]) -> ScriptOutcome:
    """Returns the result of one job's answer."""
    word, more = decode.name(answer[0]), answer[1] if len(answer) > 1 else None
    match word:
        case "done":
            return ScriptOutcome(job.id, Outcome.DONE)
        case "missing":
            return ScriptOutcome(job.id, Outcome.MISSING, "There is no such job any more.")
        case "ghost":
            return ScriptOutcome(job.id, Outcome.MISSING, _BARE, job.state)
        case "elsewhere":
            return _elsewhere(job, decode.name(more))
    return ScriptOutcome(job.id, Outcome.REFUSED, _why(word, more), job.state)


def _elsewhere(job: ExpectedJob, place: str) -> ScriptOutcome:
    state = JobState(place) if place else JobState.UNKNOWN
    why = f"It is {state} now, not {job.state} any more." if place else f"It is not {job.state} any more."
    return ScriptOutcome(job.id, Outcome.REFUSED, why, state if place else None)


def _why(word: str, more: Any) -> str:
    sentences = {
        "locked": f"It is locked again ({_left(more)}).",
        "other": f"Its lock is not the one that was shown ({_left(more)}).",
        "unlocked": "It no longer has a lock.",
        "changed": _AGAIN.get(decode.name(more), "It has changed since it was shown."),
        "unproven": UNPROVEN,
        "refused": f"The store refused it: {decode.prose(more)}",
        "strange": f"Its key does not hold a job but a {decode.name(more)}.",
    }
    return sentences.get(word, f"The script answered {word}.")


def _left(ms: Any) -> str:
    left = decode.remaining(ms)
    return "it never expires" if left is None else f"expires in {-(-left // 1000)} s"
