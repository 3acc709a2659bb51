"""The operator of job tables changes a row only as it was shown, on each kind of database."""

from __future__ import annotations

import pytest

from recovery.backends.job_tables.operator import BY_HAND, ORPHANED
from recovery.backends.job_tables.updates import BUSY, CHUNK
from recovery.domain.actions.types import Action, ExpectedJob, Outcome
from recovery.domain.jobs import JobState
from recovery.errors import Unsupported
from tests.support.stores.tables import FLAVOUR, REF, Jobs, act, seen, table_operator, table_reader

pytestmark = pytest.mark.django_db
OVER = {"lease_until": -120, "started_at": -300, "worker": "a"}


def test_an_orphan_goes_back_to_wait_with_one_attempt_more(jobs: Jobs) -> None:
    id, wire = jobs.add("running", tries=1, **OVER), jobs.wire()
    (done,) = act(Action.REQUEUE, wire, seen(wire, id))
    assert (done.outcome, done.state) == (Outcome.DONE, JobState.WAITING)
    assert jobs.one(id, "status", "tries", "error") == ("pending", 2, ORPHANED)
    assert jobs.one(id, "started_at", "lease_until", "worker", "finished_at") == (None, None, None, None)


def test_an_orphan_whose_attempts_are_used_up_fails(jobs: Jobs) -> None:
    id, wire = jobs.add("running", tries=4, most_tries=5, **OVER), jobs.wire()
    (done,) = act(Action.REQUEUE, wire, seen(wire, id))
    assert (done.outcome, done.state) == (Outcome.DONE, JobState.FAILED)
    assert "5 attempts are used up" in done.why
    assert jobs.one(id, "status", "tries", "error", "worker") == ("failed", 5, ORPHANED, "a")
    row = table_reader().row(wire, REF, id)
    assert row.finished_at == pytest.approx(table_reader().look(wire, REF).now, abs=60_000)


@pytest.mark.parametrize(("tries", "status"), [(0, "pending"), (2, "failed"), (7, "failed")])
def test_without_a_column_for_it_the_configured_limit_counts(jobs: Jobs, tries: int, status: str) -> None:
    id, wire = jobs.add("running", tries=tries, **OVER), jobs.wire(max_attempts=None)
    act(Action.REQUEUE, wire, seen(wire, id))
    assert jobs.one(id, "status") == status


def test_a_row_whose_limit_is_nothing_has_the_configured_one(jobs: Jobs) -> None:
    id, wire = jobs.add("running", tries=2, most_tries=None, **OVER), jobs.wire(attempts_limit=9)
    act(Action.REQUEUE, wire, seen(wire, id))
    assert jobs.one(id, "status") == "pending"


def test_an_act_may_be_told_not_to_count(jobs: Jobs) -> None:
    id, wire = jobs.add("running", tries=2, most_tries=3, **OVER), jobs.wire()
    act(Action.REQUEUE, wire, seen(wire, id), counts_as_stall=False)
    assert jobs.one(id, "status", "tries") == ("pending", 2)


def test_a_person_fails_an_orphan_with_a_reason(jobs: Jobs) -> None:
    first, second, wire = jobs.add("running", **OVER), jobs.add("running", **OVER), jobs.wire()
    act(Action.FAIL, wire, seen(wire, first))
    act(Action.FAIL, wire, seen(wire, second), message="the file is gone")
    assert [jobs.one(id, "status", "error") for id in (first, second)] == [
        ("failed", BY_HAND),
        ("failed", "the file is gone"),
    ]


@pytest.mark.parametrize("status", ["failed", "done"])
def test_a_finished_row_is_retried_and_may_begin_anew(jobs: Jobs, status: str) -> None:
    ids = [jobs.add(status, tries=3, error="it broke", finished_at=-9, worker="a") for _ in range(2)]
    wire = jobs.wire()
    act(Action.RETRY, wire, seen(wire, ids[0]))
    act(Action.RETRY, wire, seen(wire, ids[1]), reset_attempts=True)
    assert [jobs.one(id, "status", "tries", "error", "finished_at", "worker") for id in ids] == [
        ("pending", 3, None, None, None),
        ("pending", 0, None, None, None),
    ]


@pytest.mark.parametrize("deed", [Action.REQUEUE, Action.FAIL])
@pytest.mark.parametrize("status", ["done", "failed", "pending", "unheard of"])
def test_what_does_not_run_is_neither_requeued_nor_failed(jobs: Jobs, deed: Action, status: str) -> None:
    id, wire = jobs.add("running", **OVER), jobs.wire()
    shown = seen(wire, id)
    jobs.place.run("UPDATE jobs SET status = ? WHERE id = ?", status, int(id))
    for force in (False, True):
        (done,) = act(deed, wire, shown, force=force)
        assert done.outcome is Outcome.REFUSED
        (done,) = act(deed, wire, seen(wire, id), force=force)
        assert done.outcome is Outcome.REFUSED
    assert jobs.status(id) == [status]


@pytest.mark.parametrize("status", ["running", "pending"])
def test_what_is_not_finished_is_not_retried(jobs: Jobs, status: str) -> None:
    id, wire = jobs.add(status, **OVER), jobs.wire()
    (done,) = act(Action.RETRY, wire, seen(wire, id))
    assert (done.outcome, jobs.status(id)) == (Outcome.REFUSED, [status])


def test_a_row_that_was_taken_again_is_left_alone(jobs: Jobs) -> None:
    id, wire = jobs.add("running", tries=1, **OVER), jobs.wire()
    shown = seen(wire, id)
    jobs.place.run("UPDATE jobs SET tries = 2 WHERE id = ?", int(id))
    (done,) = act(Action.REQUEUE, wire, shown)
    assert done.outcome is Outcome.REFUSED
    assert "started again" in done.why
    jobs.place.run(f"UPDATE jobs SET tries = 1, started_at = {jobs.moment(-1)} WHERE id = ?", int(id))
    (done,) = act(Action.REQUEUE, wire, shown)
    assert (done.outcome, jobs.status(id)) == (Outcome.REFUSED, ["running"])


@pytest.mark.parametrize("proof", [{"lease_until": 900}, {"beat_at": -1, "lease_until": None}])
def test_a_row_that_somebody_keeps_needs_force(jobs: Jobs, proof: dict[str, float]) -> None:
    id, wire = jobs.add("running", **{**OVER, **proof}), jobs.wire(heartbeat_limit=300)
    (done,) = act(Action.REQUEUE, wire, seen(wire, id))
    assert done.outcome is Outcome.REFUSED
    assert "a worker may still run it" in done.why
    (done,) = act(Action.REQUEUE, wire, seen(wire, id), force=True)
    assert (done.outcome, jobs.status(id)) == (Outcome.DONE, ["pending"])


def test_a_row_that_shows_nothing_needs_force_or_a_start(jobs: Jobs) -> None:
    first, second, wire = jobs.add("running"), jobs.add("running"), jobs.wire()
    (done,) = act(Action.REQUEUE, wire, seen(wire, first))
    assert (done.outcome, "needs force" in done.why) == (Outcome.REFUSED, True)
    assert act(Action.REQUEUE, wire, seen(wire, first), force=True)[0].outcome is Outcome.DONE
    assert act(Action.REQUEUE, wire, seen(wire, second), at_start=True)[0].outcome is Outcome.DONE


def test_many_are_answered_in_their_order(jobs: Jobs) -> None:
    orphan, done_row, gone = jobs.add("running", **OVER), jobs.add("done"), jobs.add("running", **OVER)
    wire = jobs.wire()
    shown = seen(wire, gone, done_row, orphan)
    jobs.place.run("DELETE FROM jobs WHERE id = ?", int(gone))
    done = act(Action.REQUEUE, wire, (*shown, ExpectedJob("no such", JobState.ACTIVE)))
    assert [one.id for one in done] == [gone, done_row, orphan, "no such"]
    assert [one.outcome for one in done] == [Outcome.MISSING, Outcome.REFUSED, Outcome.DONE, Outcome.MISSING]


def test_a_chunk_is_bounded(jobs: Jobs) -> None:
    assert table_operator().chunk(Action.REQUEUE) == CHUNK
    with pytest.raises(ValueError, match="at most"):
        act(Action.REQUEUE, jobs.wire(), tuple(ExpectedJob(str(at), JobState.ACTIVE) for at in range(CHUNK + 1)))


def test_columns_that_may_not_be_empty_are_left(jobs: Jobs) -> None:
    strict = {"sqlite": "TEXT", "postgresql": "timestamptz", "mariadb": "datetime(3)"}[jobs.kind]
    jobs.place.run("DROP TABLE jobs")
    jobs.create(
        f"CREATE TABLE jobs (id INTEGER PRIMARY KEY, kind VARCHAR(80), status VARCHAR(20) NOT NULL,"
        f" lease_until {strict} NOT NULL, worker VARCHAR(80) NOT NULL)"
    )
    jobs.place.run(f"INSERT INTO jobs (id, status, lease_until, worker) VALUES (7, 'running', {jobs.moment(-99)}, 'a')")
    bare = dict.fromkeys(("attempts", "max_attempts", "last_error", "queued_at", "started_at", "finished_at"))
    wire = jobs.wire(**bare, heartbeat=None, data=None)
    (done,) = act(Action.REQUEUE, wire, seen(wire, "7"))
    assert (done.outcome, jobs.one("7", "status", "worker")) == (Outcome.DONE, ("pending", "a"))


def test_what_the_database_refuses_is_told_and_nothing_is_done(jobs: Jobs) -> None:
    jobs.place.run("DROP TABLE jobs")
    jobs.create(
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, kind VARCHAR(80), tries INTEGER NOT NULL,"
        " status VARCHAR(20) NOT NULL CHECK (status <> 'pending'))"
    )
    jobs.place.run("INSERT INTO jobs (id, status, tries) VALUES (1, 'running', 0), (2, 'running', 8)")
    bare = dict.fromkeys(("max_attempts", "last_error", "queued_at", "started_at", "finished_at", "lease_until"))
    wire = jobs.wire(**bare, heartbeat=None, data=None, owner=None)
    done = act(Action.REQUEUE, wire, seen(wire, "2", "1"), force=True)
    assert [one.outcome for one in done] == [Outcome.REFUSED, Outcome.REFUSED]
    assert "The database refused it" in done[0].why
    assert jobs.status("1", "2") == ["running", "running"]


@pytest.mark.parametrize("place", ["postgresql", "mariadb"], indirect=True)
def test_a_row_that_somebody_changes_right_now_is_not_waited_for(jobs: Jobs) -> None:
    busy, free, wire = jobs.add("running", **OVER), jobs.add("running", **OVER), jobs.wire()
    shown = seen(wire, busy, free)
    with wire.session() as other, other.transaction():
        other.change("UPDATE jobs SET status = 'done' WHERE id = %s", [int(busy)])
        done = {one.id: one for one in act(Action.REQUEUE, wire, shown)}
    assert (done[busy].outcome, done[busy].why) == (Outcome.REFUSED, BUSY)
    assert done[free].outcome is Outcome.DONE
    assert jobs.status(busy, free) == ["done", "pending"]


def test_a_late_success_wins_over_a_sweep(jobs: Jobs) -> None:
    id, wire = jobs.add("running", **OVER), jobs.wire()
    act(Action.REQUEUE, wire, seen(wire, id))
    jobs.place.run("UPDATE jobs SET status = 'done' WHERE id = ?", int(id))
    assert jobs.status(id) == ["done"]


def test_a_finished_time_is_written_as_the_table_writes_its_own(jobs: Jobs) -> None:
    id, wire = jobs.add("running", **OVER), jobs.wire(timezone="Asia/Tokyo") if jobs.kind == "mariadb" else jobs.wire()
    act(Action.FAIL, wire, seen(wire, id), force=True)
    finished = table_reader().row(wire, REF, id).finished_at
    assert finished == pytest.approx(table_reader().look(wire, REF).now, abs=60_000)


@pytest.mark.parametrize(
    "deed",
    [
        Action.RELEASE,
        Action.PROMOTE,
        Action.CANCEL,
        Action.REMOVE,
        Action.CLEAN,
        Action.DRAIN,
        Action.RESTORE,
        Action.PAUSE,
        Action.RESUME,
    ],
)
def test_what_does_not_fit_rows_is_refused_with_a_reason(jobs: Jobs, deed: Action) -> None:
    assert table_operator().refusals(FLAVOUR)[deed]
    id, wire = jobs.add("running", **OVER), jobs.wire()
    with pytest.raises(Unsupported):
        act(deed, wire, seen(wire, id))
    assert jobs.status(id) == ["running"]


def test_a_database_that_is_read_only_is_not_written(jobs: Jobs) -> None:
    id, wire = jobs.add("running", **OVER), jobs.wire(read_only=True)
    with pytest.raises(Unsupported, match="read only"):
        act(Action.REQUEUE, wire, seen(wire, id))
    assert jobs.status(id) == ["running"]
