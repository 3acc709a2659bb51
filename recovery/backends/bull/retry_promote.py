"""Retries and promotes jobs: both go back into the queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from recovery.backends.base import Target
from recovery.backends.bull import job_fields, scripts
from recovery.backends.bull.scripts import TOGETHER, BullScriptCall
from recovery.domain.actions.types import ActionOptions, ExpectedJob, ScriptOutcome
from recovery.domain.jobs import JobState
from recovery.stores.redis.scripts import Part

STEP = 15  # jobs of one run: one with a priority is put in order in the waiting list, which is searched for it


def retry(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int) -> tuple[ScriptOutcome, ...]:
    """Retries failed or completed jobs, each from where it was shown."""
    job_options = {job.id: written for job, written in zip(jobs, job_fields.options(target, jobs), strict=True)}

    def each(job: ExpectedJob) -> Iterable[Part]:
        return (job.state.value, *scripts.comparison_args(job), "RPUSH" if job_options[job.id].get("lifo") else "LPUSH")

    settings = (now, _yes(options.reset_stalls), _yes(options.reset_attempts))
    against = scripts.misplaced(jobs, (JobState.FAILED, JobState.COMPLETED))
    return BullScriptCall("retry-jobs", target, settings, each, STEP, TOGETHER).do(jobs, against)


def promote(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int) -> tuple[ScriptOutcome, ...]:
    against = scripts.misplaced(jobs, (JobState.DELAYED,))
    return BullScriptCall("promote-jobs", target, (), scripts.comparison_args, STEP, TOGETHER).do(jobs, against)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else ""
