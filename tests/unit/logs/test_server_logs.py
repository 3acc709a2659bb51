"""Which lines of which server belong to a job: from when to when, with which marks, from which sources."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dashboard.queues.job.server_logs import AFTER, BEFORE, UNSEEN, JobRunPeriod, chosen, span
from recovery.config.logs import FILES, LOKI, SHIPPED, LogSource
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.reads.stuck.incidents import IncidentRecord

NOW = 1_795_000_000_000
STARTED, LOST, BACK = NOW - 900_000, NOW - 600_000, NOW - 300_000
JOB = QueueRef("main", "bull:mail").job("1")
ROW = JobRow(JOB, JobState.ACTIVE, processed_at=STARTED)
OPEN = IncidentRecord(1, JOB, "mail", "orphan", "crashed", "", "mail-1", "eu-1", LOST, LOST, None, "", None)
CLOSED = replace(OPEN, closed_at=BACK, resolved_by="stalled-check")

FROM_LOKI = LogSource("loki", "Loki", LOKI, server_label="host")
FROM_FILES = LogSource("app", "App", FILES, server_label="server", server="eu-1")


def test_what_never_ran_has_no_lines() -> None:
    assert span(replace(ROW, state=JobState.WAITING, processed_at=None), (), NOW) is None


def test_a_job_that_runs_is_followed_from_a_little_before_its_start() -> None:
    assert span(ROW, (), NOW) == JobRunPeriod(STARTED - BEFORE, None, ((STARTED, "Picked up"),))


def test_of_a_lost_job_the_lines_end_a_while_after_its_lock_was_lost() -> None:
    marks = ((STARTED, "Picked up"), (LOST, "Lock lost"))
    assert span(ROW, (OPEN,), NOW) == JobRunPeriod(STARTED - BEFORE, LOST + AFTER, marks)
    just_now = replace(OPEN, opened_at=NOW - 1000)
    assert span(ROW, (just_now,), NOW) == JobRunPeriod(STARTED - BEFORE, None, (marks[0], (NOW - 1000, "Lock lost")))


def test_a_holder_that_went_leaves_its_lock_for_a_while() -> None:
    found = span(ROW, (replace(OPEN, kind="worker-lost"),), NOW)
    assert found
    assert found.marks[-1] == (LOST, "Worker lost")


def test_a_job_that_runs_again_shows_the_loss_before_and_goes_on() -> None:
    again = replace(ROW, processed_at=BACK + 1000)
    marks = ((LOST, "Lock lost"), (BACK, "Recovered"), (BACK + 1000, "Picked up again"))
    assert span(again, (CLOSED,), NOW) == JobRunPeriod(LOST - UNSEEN, None, marks)
    done = replace(again, state=JobState.COMPLETED, finished_at=BACK + 5000)
    assert span(done, (CLOSED,), NOW) == JobRunPeriod(
        LOST - UNSEEN, BACK + 5000 + AFTER, (*marks, (BACK + 5000, "Completed"))
    )


def test_a_lost_job_that_waits_again_shows_its_loss() -> None:
    waits = replace(ROW, state=JobState.WAITING, processed_at=None)
    assert span(waits, (CLOSED,), NOW) == JobRunPeriod(
        LOST - UNSEEN, BACK + AFTER, ((LOST, "Lock lost"), (BACK, "Recovered"))
    )


def test_earlier_incidents_are_left_out() -> None:
    long_ago = replace(CLOSED, opened_at=STARTED - 10_000_000, closed_at=STARTED - 9_000_000)
    found = span(ROW, (OPEN, long_ago), NOW)
    assert found
    assert [words for _, words in found.marks] == ["Picked up", "Lock lost"]


@pytest.mark.parametrize(
    ("known", "shipped", "names"),
    [
        ((SHIPPED,), {"eu-1"}, ["servers"]),
        ((SHIPPED,), set(), ["servers"]),
        ((SHIPPED, FROM_LOKI), {"eu-1"}, ["servers"]),
        ((SHIPPED, FROM_LOKI), {"eu-2"}, ["loki"]),
        ((SHIPPED, FROM_FILES), {"eu-1"}, ["servers", "app"]),
        ((SHIPPED, replace(FROM_FILES, server="eu-2")), {"eu-1"}, ["servers"]),
        ((replace(SHIPPED, server_label=""), replace(FROM_LOKI, server_label="")), {"eu-1"}, []),
    ],
)
def test_sources_that_call_servers_alike_and_have_lines_of_this_one(
    known: tuple[LogSource, ...], shipped: set[str], names: list[str]
) -> None:
    assert [source.name for source in chosen(known, ["eu-1"], frozenset(shipped))] == names
