"""What becomes of n8n's jobs is said as of any queue: by whom, when, or never; and then what n8n makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.jobs import State
from recovery.domain.n8n import fates
from recovery.domain.n8n.around import Around
from recovery.domain.n8n.claims import Claim
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.pairs import Release
from recovery.domain.refs import QueueRef
from recovery.domain.surroundings import Surroundings

NOW = 1_800_000_000_000
QUEUE = QueueRef("main", "bull:jobs")
BARE = Claim(QUEUE.job("1"), State.ACTIVE, "51", processed_at=NOW - 90_000)
WAITS = Claim(QUEUE.job("1"), State.WAITING, "51")
ENDED = Execution("51", "wf", "webhook", ExecutionStatus.SUCCESS, started_at=NOW - 90_000)
WATCHED = Surroundings(NOW, workers=2, stalled_check_ttl=12_000, is_n8n=True)
ALIVE = Around(NOW, release=Release.TWO, workers={QUEUE: 2}, watched={QUEUE: WATCHED})
EMPTY = Around(
    NOW, release=Release.TWO, workers={QUEUE: 0}, watched={QUEUE: replace(WATCHED, workers=0, stalled_check_ttl=None)}
)
# Workers are connected, and none of them runs the stalled check.
SILENT = replace(ALIVE, watched={QUEUE: replace(WATCHED, stalled_check_ttl=None, watched_since=NOW - 600_000)})
SAID = {
    "orphaned": lambda around: fates.of_orphan(BARE, around),
    "left": lambda around: fates.of_left(BARE, ENDED, around),
    "deleted": lambda around: fates.of_deleted(BARE, around),
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
@pytest.mark.parametrize("release", Release)
def test_who_takes_it_has_a_time_or_it_is_never(said: object, release: Release) -> None:
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
    assert fates.of_orphan(BARE, EMPTY).endswith(" n8n takes an active job for a running one.")
    assert fates.of_orphan(BARE, replace(ALIVE, release=Release.UNKNOWN)).endswith("runs again from its start.")
    assert fates.of_deleted(BARE, ALIVE).endswith("finds no such execution, and fails it.")


def test_a_job_that_waits_is_taken_by_a_worker_that_is_there() -> None:
    assert fates.of_left(WAITS, ENDED, ALIVE).startswith("The next free worker ")
    assert fates.of_left(WAITS, ENDED, EMPTY).startswith("No worker is connected: the next one to connect ")
    assert fates.of_left(WAITS, ENDED, replace(EMPTY, paused=frozenset({QUEUE}))).startswith(
        "Once the queue is resumed"
    )


def test_of_a_queue_that_no_snapshot_has_it_is_said_that_nothing_is_known() -> None:
    said = fates.of_orphan(BARE, Around(NOW))
    assert "Whether a worker is connected is not known." in said


def test_of_an_n8n_that_is_known_only_what_it_does_is_said() -> None:
    two, old = fates.of_orphan(BARE, ALIVE), fates.of_orphan(BARE, replace(ALIVE, release=Release.OLD))
    assert two == (
        "A worker's stalled check picks it up within 12 s; n8n fails it then, and from 2.41 on its execution is an "
        "error up to 30 s later. "
        "Its main process is notified, and the execution becomes an error."
    )
    assert old == (
        "A worker's stalled check picks it up within 12 s; n8n runs it again then. "
        "The workflow then starts from its beginning."
    )
    assert "n8n 2 and later" in fates.of_orphan(BARE, replace(ALIVE, release=Release.ONE))
