"""From where a job's holder is connected, or was when it was last seen."""

from __future__ import annotations

from dataclasses import replace

from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.stuck.context import CHANGES_KEPT_FOR, LocklessObservation, VerdictContext, WorkerChange
from recovery.domain.stuck.holders import holder_server, with_holder_server

NOW = 1_795_000_000_000
HELD = JobRow(QueueRef("main", "bull:mail").job("1"), JobState.ACTIVE, lock=JobLock("w:1", 22_000), worker="mail-1")
LOST = replace(HELD, lock=None)
NAMED = VerdictContext(
    NOW, workers=2, names=frozenset({"mail-1", "mail-2"}), hosts={"mail-1": "10.0.0.7", "mail-2": ""}
)
UNNAMED = VerdictContext(NOW, workers=2, unnamed=2, hosts={"": "10.0.0.8"})


def test_a_named_holder_is_where_it_is_connected() -> None:
    assert holder_server(HELD, NAMED) == "10.0.0.7"
    assert holder_server(replace(HELD, worker="mail-2"), NAMED) == "", "the same name on two hosts"


def test_one_that_went_was_where_it_was_last_seen() -> None:
    around = replace(
        NAMED, hosts={"mail-2": "10.0.0.9"}, left=(WorkerChange("mail-1", 1, "a"), WorkerChange("mail-1", 2, "b"))
    )
    assert holder_server(LOST, around) == "b"


def test_without_names_one_host_is_known_and_of_two_none() -> None:
    assert holder_server(HELD, UNNAMED) == "10.0.0.8"
    assert holder_server(LOST, UNNAMED) == "", "whoever lost it need not be one of those that are here"
    assert holder_server(HELD, replace(UNNAMED, hosts={"": ""})) == ""


def test_when_all_went_it_is_the_host_they_were_on() -> None:
    gone = replace(UNNAMED, workers=0, unnamed=0, hosts={}, left=(WorkerChange("", 1, "10.0.0.8"),))
    assert holder_server(LOST, gone) == "10.0.0.8"
    assert holder_server(LOST, replace(gone, left=(*gone.left, WorkerChange("", 2, "10.0.0.9")))) == ""


def test_one_server_that_all_workers_since_its_start_were_on_is_where_it_ran() -> None:
    """A job without a lock and without a name: whoever lost it was one of those that are here, or that have left."""
    started = replace(LOST, worker="", processed_at=NOW - 60_000)
    watched = replace(
        UNNAMED, hosts={"": "eu-2"}, left=(WorkerChange("", NOW - 5_000, "eu-2"),), watched_since=NOW - 90_000
    )
    assert holder_server(started, watched) == "eu-2"
    assert holder_server(started, replace(watched, left=(WorkerChange("", NOW - 5_000, "eu-1"),))) == ""
    assert holder_server(started, replace(watched, watched_since=NOW - 1_000)) == "", (
        "others may have been here before us"
    )
    assert holder_server(replace(started, processed_at=NOW - CHANGES_KEPT_FOR), watched) == "", (
        "so old moves are forgotten"
    )


def test_a_job_is_told_how_busy_its_server_was_and_not_how_busy_it_is() -> None:
    around = replace(NAMED, hosts={"mail-1": "eu-2", "mail-2": "eu-1"}, loads={"eu-2": 97.0, "eu-1": 3.0})
    fresh = with_holder_server(LOST, around, LocklessObservation(NOW))
    assert (fresh.server, fresh.cpu) == ("eu-2", 97.0)
    later = with_holder_server(
        LOST, replace(around, loads={"eu-2": 4.0}), LocklessObservation(NOW - 600_000, 9, cpu=97.0)
    )
    assert (later.server, later.cpu) == ("eu-2", 97.0)
    assert with_holder_server(LOST, around, LocklessObservation(NOW - 600_000, 9)).cpu is None, "nobody measured then"
