"""Retries and promotes jobs: both go back into the queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery.backends.base import Target
from recovery.backends.bull import looks, scripted
from recovery.backends.bull.scripted import TOGETHER, Call
from recovery.connections.scripts import Part
from recovery.domain.acting import Done, Options, Seen
from recovery.domain.jobs import State

STEP = 15  # jobs of one run: one with a priority is put in order in the waiting list, which is searched for it


def retry(target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    """Retries failed or completed jobs, each from where it was shown."""
    wishes = {job.id: wish for job, wish in zip(jobs, looks.options(target, jobs), strict=True)}

    def each(job: Seen) -> Iterable[Part]:
        return (job.state.value, *scripted.shown(job), "RPUSH" if wishes[job.id].get("lifo") else "LPUSH")

    settings = (now, _yes(options.reset_stalls), _yes(options.reset_attempts))
    against = scripted.misplaced(jobs, (State.FAILED, State.COMPLETED))
    return Call("retry-jobs", target, settings, each, STEP, TOGETHER).do(jobs, against)


def promote(target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    against = scripted.misplaced(jobs, (State.DELAYED,))
    return Call("promote-jobs", target, (), scripted.shown, STEP, TOGETHER).do(jobs, against)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else ""
