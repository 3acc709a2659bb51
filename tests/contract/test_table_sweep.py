"""What a sweep of a job table takes, and what it leaves, on each kind of database."""

from __future__ import annotations

from itertools import islice

import pytest

from recovery.backends.job_tables import sweep
from recovery.backends.job_tables.operator import ORPHANED
from recovery.backends.job_tables.sweep import SweepTrigger, Swept
from recovery.errors import BadOrder, Unsupported
from tests.support.stores.tables import REF, Jobs

pytestmark = pytest.mark.django_db
START = SweepTrigger(is_start=True)
TIME = SweepTrigger()
NO_PROOF = {"lease_until": None, "heartbeat": None}


def test_at_a_start_whatever_runs_goes_back_to_wait(jobs: Jobs) -> None:
    running = [jobs.add("running", tries=0, started_at=-9), jobs.add("running", tries=1)]
    last = jobs.add("running", tries=2, most_tries=3)
    others = [jobs.add(status) for status in ("pending", "done", "failed", "unheard of")]
    swept = sweep.sweep(jobs.wire(**NO_PROOF), REF, START, 100)
    assert swept == Swept(requeued=2, failed=1)
    assert jobs.status(*running, last) == ["pending", "pending", "failed"]
    assert [jobs.one(id, "tries", "error") for id in (*running, last)] == [(1, ORPHANED), (2, ORPHANED), (3, ORPHANED)]
    assert jobs.status(*others) == ["pending", "done", "failed", "unheard of"]


def test_an_owner_takes_its_own_rows_and_no_others(jobs: Jobs) -> None:
    mine = jobs.add("running", worker="a", lease_until=600)
    others = [jobs.add("running", worker="b"), jobs.add("running"), jobs.add("running", worker="A ")]
    swept = sweep.sweep(jobs.wire(), REF, SweepTrigger(is_start=True, owner="a"), 100)
    assert (swept.requeued, swept.left) == (1, 3)
    assert jobs.status(mine, *others) == ["pending", "running", "running", "running"]


def test_rows_that_another_living_worker_keeps_are_left_at_a_start(jobs: Jobs) -> None:
    kept = [jobs.add("running", lease_until=600), jobs.add("running", beat_at=-1)]
    lost = [jobs.add("running", lease_until=-600), jobs.add("running", beat_at=-900), jobs.add("running")]
    swept = sweep.sweep(jobs.wire(heartbeat_limit=300), REF, START, 100)
    assert (swept.requeued, swept.left) == (3, 2)
    assert jobs.status(*kept, *lost) == ["running"] * 2 + ["pending"] * 3


def test_a_row_that_was_taken_after_the_start_is_left(jobs: Jobs) -> None:
    before, after = jobs.add("running", started_at=-60), jobs.add("running", started_at=3600)
    assert sweep.sweep(jobs.wire(**NO_PROOF), REF, START, 100).requeued == 1
    assert jobs.status(before, after) == ["pending", "running"]


def test_as_time_goes_by_only_what_is_over_is_taken(jobs: Jobs) -> None:
    over = jobs.add("running", lease_until=-600)
    graced = jobs.add("running", lease_until=-30)
    silent = jobs.add("running", beat_at=-900)
    heard = jobs.add("running", beat_at=-30)
    renewed = jobs.add("running", beat_at=-900, lease_until=600)
    unknown = jobs.add("running", started_at=-90_000)
    swept = sweep.sweep(jobs.wire(lease_grace=300, heartbeat_limit=300), REF, TIME, 100)
    assert (swept.requeued, swept.left) == (2, 4)
    assert jobs.status(over, silent) == ["pending", "pending"]
    assert jobs.status(graced, heard, renewed, unknown) == ["running"] * 4


def test_by_age_where_nothing_else_tells(jobs: Jobs) -> None:
    old, young, ageless = (
        jobs.add("running", started_at=-7200),
        jobs.add("running", started_at=-60),
        jobs.add("running"),
    )
    assert sweep.sweep(jobs.wire(age_limit=3600, **NO_PROOF), REF, TIME, 100).requeued == 1
    assert jobs.status(old, young, ageless) == ["pending", "running", "running"]
    assert sweep.sweep(jobs.wire(**NO_PROOF), REF, TIME, 100) == Swept(left=2)


def test_ids_of_nineteen_digits_are_gone_through_once_and_found_again(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As generators of ids make them all over the world: a number of 63 bits."""
    monkeypatch.setattr(sweep, "WINDOW", 2)
    ids = [str(7_190_000_000_000_000_001 + number) for number in range(5)]
    for id in ids:
        jobs.add("running", id=int(id))
    windows = list(islice(sweep.orphans(jobs.wire(**NO_PROOF), REF, START), 9))
    assert [one.look.row.id for _, found in windows for one in found] == ids
    assert sweep.sweep(jobs.wire(**NO_PROOF), REF, START, 100) == Swept(requeued=5)


def test_a_policy_may_wait_longer(jobs: Jobs) -> None:
    jobs.add("running", lease_until=-600)
    assert sweep.sweep(jobs.wire(), REF, SweepTrigger(after=900_000), 100) == Swept(left=1)
    assert sweep.sweep(jobs.wire(), REF, SweepTrigger(after=300_000), 100) == Swept(requeued=1)


def test_no_more_are_taken_than_may_be(jobs: Jobs) -> None:
    for _ in range(5):
        jobs.add("running")
    swept = sweep.sweep(jobs.wire(), REF, START, 3)
    assert (swept.requeued, swept.more) == (3, True)
    assert "and more are there" in swept.words
    assert sweep.sweep(jobs.wire(), REF, START, 3) == Swept(requeued=2)


def test_a_long_table_is_swept_window_by_window(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "WINDOW", 3)
    monkeypatch.setattr("recovery.backends.job_tables.updates.CHUNK", 2)
    ids = [jobs.add("running", started_at=-9) for _ in range(10)]
    assert sweep.sweep(jobs.wire(), REF, START, 100) == Swept(requeued=10)
    assert set(jobs.status(*ids)) == {"pending"}


def test_a_row_that_moved_since_it_was_seen_is_left_and_counted(jobs: Jobs) -> None:
    finished, taken, renewed, free = (jobs.add("running", lease_until=-600, worker="a") for _ in range(4))
    wire = jobs.wire()
    ((_, found),) = sweep.orphans(wire, REF, TIME)
    jobs.place.run("UPDATE jobs SET status = 'done' WHERE id = ?", int(finished))
    jobs.place.run("UPDATE jobs SET worker = 'b' WHERE id = ?", int(taken))
    jobs.place.run(f"UPDATE jobs SET lease_until = {jobs.moment(600)} WHERE id = ?", int(renewed))
    with sweep.job_tables_queries.table_context(wire, REF) as scene:
        done = {one.id: one.outcome.value for one in sweep.recover_rows(scene, found, TIME)}
    assert done == {finished: "refused", taken: "refused", renewed: "refused", free: "done"}
    assert jobs.status(finished, taken, renewed, free) == ["done", "running", "running", "pending"]


def test_how_many_is_logged(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    jobs.add("running")
    with caplog.at_level("INFO", "recovery"):
        sweep.sweep(jobs.wire(), REF, START, 10)
    assert "sweep of app/jobs: 1 rows requeued, 0 failed" in caplog.text


def test_without_a_column_of_owners_nobody_has_rows_of_its_own(jobs: Jobs) -> None:
    jobs.add("running")
    with pytest.raises(BadOrder, match="no owner column"):
        sweep.sweep(jobs.wire(owner=None), REF, SweepTrigger(is_start=True, owner="a"), 10)


def test_a_database_that_is_read_only_is_not_swept(jobs: Jobs) -> None:
    id = jobs.add("running")
    with pytest.raises(Unsupported):
        sweep.sweep(jobs.wire(read_only=True), REF, START, 10)
    assert jobs.status(id) == ["running"]
