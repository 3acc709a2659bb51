"""What becomes of n8n's jobs is said as of any queue: by whom, when, or never; and then what n8n makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.n8n import mismatch_text
from recovery.domain.n8n.comparison import N8nRelease
from recovery.domain.n8n.comparison_context import ComparisonContext
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.stuck.context import VerdictContext

NOW = 1_800_000_000_000
QUEUE = QueueRef("main", "bull:jobs")
BARE = N8nJob(QUEUE.job("1"), JobState.ACTIVE, "51", processed_at=NOW - 90_000)
WAITS = N8nJob(QUEUE.job("1"), JobState.WAITING, "51")
ENDED = Execution("51", "wf", "webhook", ExecutionStatus.SUCCESS, started_at=NOW - 90_000)
WATCHED = VerdictContext(NOW, workers=2, stalled_check_ttl=12_000, is_n8n=True)
ALIVE = ComparisonContext(NOW, release=N8nRelease.TWO, workers={QUEUE: 2}, watched={QUEUE: WATCHED})
EMPTY = ComparisonContext(
    NOW,
    release=N8nRelease.TWO,
    workers={QUEUE: 0},
    watched={QUEUE: replace(WATCHED, workers=0, stalled_check_ttl=None)},
)
# Workers are connected, and none of them runs the stalled check.
SILENT = replace(ALIVE, watched={QUEUE: replace(WATCHED, stalled_check_ttl=None, watched_since=NOW - 600_000)})
SAID = {
    "orphaned": lambda around: mismatch_text.orphan_outlook(BARE, around),
    "left": lambda around: mismatch_text.leftover_job_outlook(BARE, ENDED, around),
    "deleted": lambda around: mismatch_text.deleted_execution_outlook(BARE, around),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
@pytest.mark.parametrize("release", N8nRelease)
def test_who_takes_it_has_a_time_or_it_is_never(said: object, release: N8nRelease) -> None:
    assert callable(said)
    assert said(replace(ALIVE, release=release)).startswith("A worker's stalled check picks it up within 12 s;")
    never = said(replace(EMPTY, release=release))
    assert never.startswith("Never recovered: no worker is connected, so no stalled check runs.")
    silent = said(replace(SILENT, release=release))
    assert silent.startswith(
        "Never recovered: workers are connected, but no worker has run the stalled check for 10 min."
    )
    assert "picks it up" not in never + silent


def test_what_n8n_makes_of_it_stands_behind() -> None:
    assert mismatch_text.orphan_outlook(BARE, EMPTY).endswith(" n8n takes an active job for a running one.")
    assert mismatch_text.orphan_outlook(BARE, replace(ALIVE, release=N8nRelease.UNKNOWN)).endswith(
        "runs again from its start."
    )
    assert mismatch_text.deleted_execution_outlook(BARE, ALIVE).endswith("finds no such execution, and fails it.")


def test_a_job_that_waits_is_taken_by_a_worker_that_is_there() -> None:
    assert mismatch_text.leftover_job_outlook(WAITS, ENDED, ALIVE).startswith("The next free worker ")
    assert mismatch_text.leftover_job_outlook(WAITS, ENDED, EMPTY).startswith(
        "No worker is connected: the next one to connect "
    )
    assert mismatch_text.leftover_job_outlook(WAITS, ENDED, replace(EMPTY, paused=frozenset({QUEUE}))).startswith(
        "Once the queue is resumed"
    )


def test_of_a_queue_that_no_snapshot_has_it_is_said_that_nothing_is_known() -> None:
    said = mismatch_text.orphan_outlook(BARE, ComparisonContext(NOW))
    assert "Whether a worker is connected is not known." in said


def test_of_an_n8n_that_is_known_only_what_it_does_is_said() -> None:
    two, old = (
        mismatch_text.orphan_outlook(BARE, ALIVE),
        mismatch_text.orphan_outlook(BARE, replace(ALIVE, release=N8nRelease.OLD)),
    )
    assert two == (
        "A worker's stalled check picks it up within 12 s; n8n fails it then, and from 2.41 on its execution is an "
        "error up to 30 s later. "
        "Its main process is notified, and the execution becomes an error."
    )
    assert old == (
        "A worker's stalled check picks it up within 12 s; n8n runs it again then. "
        "The workflow then starts from its beginning."
    )
    assert "n8n 2 and later" in mismatch_text.orphan_outlook(BARE, replace(ALIVE, release=N8nRelease.ONE))
