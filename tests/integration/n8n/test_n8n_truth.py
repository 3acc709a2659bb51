"""Every way in which n8n's jobs and executions contradict each other, made with the real bull and a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.domain.jobs import JobState
from recovery.domain.n8n.comparison import N8nRelease
from recovery.domain.n8n.error_rates import ErrorRate
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair
from recovery.n8n.database import error_rates, schema
from recovery.stores.sql.sql_client import as_sql_client
from tests.support.n8n.n8n_looking import Looks, kinds
from tests.support.n8n.n8n_mending import KEPT, OVERWRITTEN
from tests.support.n8n.n8n_schema import RELEASES
from tests.support.n8n.n8n_yard import Yard
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import Postgresql
from tests.support.waiting import until

pytestmark = pytest.mark.django_db

MINUTES = 240.0  # seconds: far beyond the grace


@pytest.fixture
def n8n_workflow() -> str:
    return "Invoices <b>& more</b>"


@pytest.fixture
def looks(yard: Yard, tmp_path: Path) -> Iterator[Looks]:
    looks = Looks(tmp_path, yard.toml())
    yield looks
    looks.close()


def taken(yard: Yard, pool: str = "") -> None:
    until(lambda: yard.queue(pool).counts()["active"] == 1, what="a worker has the job")


def test_what_is_as_it_should_be_is_no_mismatch(yard: Yard, looks: Looks) -> None:
    running, waiting = yard.begin(ago=MINUTES), yard.begin(ago=MINUTES)
    yard.work()
    taken(yard)
    yard.started(running, ago=MINUTES)
    yard.execution("waiting", ago=MINUTES, wait=-MINUTES)
    yard.execution("success", ago=MINUTES, stopped=MINUTES)
    yard.execution("running", mode="manual", ago=MINUTES)

    truth = looks.settled()

    assert (truth.fault, truth.mismatches, truth.pairs) == ("", 0, ())
    assert (truth.jobs, truth.executions, truth.parked, truth.elsewhere) == (2, 4, 1, 1)
    assert [(pair.id, pair.title) for pair in truth.matching] == [
        (running.execution, "Invoices <b>& more</b>"),
        (waiting.execution, "Invoices <b>& more</b>"),
    ]


def test_a_running_execution_without_a_job_is_told_with_what_n8n_will_do(yard: Yard, looks: Looks) -> None:
    lost = yard.execution("running", ago=MINUTES)
    pair = looks.sees(MismatchKind.NO_JOB)

    assert pair.id == lost
    assert pair.claim is None
    assert pair.finding is not None
    assert pair.finding.repair is MismatchRepair.MARK
    assert (
        pair.finding.why
        == f"Execution {lost} is running since 5 min. No job for it waits or runs in any of n8n's queues."
    )
    assert "n8n marks it crashed at its next recovery check" in pair.finding.fate


def test_the_second_look_tells_what_the_first_one_met_even_when_it_comes_a_moment_early(
    yard: Yard, looks: Looks
) -> None:
    yard.execution("running", ago=MINUTES)
    assert looks.look().mismatches == 0
    early = looks.look(later=29.2)
    assert early.counts == {MismatchKind.NO_JOB: 1}


def test_while_a_worker_is_older_than_it_the_workers_are_to_be_checked_first(yard: Yard, looks: Looks) -> None:
    run = yard.begin(ago=MINUTES)
    yard.work()
    taken(yard)
    yard.started(run)
    yard.store.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")  # type: ignore[attr-defined]  # as a flush

    pair = looks.sees(MismatchKind.NO_JOB, later=60)

    assert pair.finding is not None
    assert pair.finding.repair is MismatchRepair.CHECK
    assert pair.finding.evidence[-1].startswith("A worker has been connected since before it began")


def test_an_execution_whose_failed_job_was_kept_did_not_hear_of_it(yard: Yard, looks: Looks) -> None:
    execution = yard.execution("running", ago=MINUTES)
    queue = yard.queue()
    job = queue.add("job", {"executionId": execution, "workflowId": "wf"}, priority=100)  # kept when it fails
    queue.work("fail", apart=True)
    until(lambda: queue.counts()["failed"] == 1)

    pair = looks.sees(MismatchKind.NO_JOB, later=60)

    assert pair.claim is not None
    assert pair.claim.job.id == job
    assert pair.claim.state is JobState.FAILED
    assert "n8n's main process was not notified" in (pair.finding.why if pair.finding else "")


def test_a_job_whose_worker_was_killed_is_orphaned_beside_its_running_execution(yard: Yard, looks: Looks) -> None:
    run = yard.begin(ago=MINUTES)
    worker = yard.work()
    taken(yard)
    yard.started(run, ago=MINUTES)
    assert looks.settled().mismatches == 0
    worker.kill()
    until(lambda: _unlocked(yard, run.job))
    yard.store.client.delete("bull:jobs:stalled-check")  # type: ignore[attr-defined]  # as when its half minute is over

    truth = looks.settled()

    (pair,) = truth.pairs
    assert (pair.id, kinds(pair)) == (run.execution, MismatchKind.ORPHANED)
    assert pair.finding is not None
    assert pair.finding.repair is MismatchRepair.FAIL
    assert "No worker is connected." in pair.finding.evidence
    assert pair.finding.fate.startswith("Never recovered: no worker is connected")


def test_an_orphan_is_told_when_two_looks_saw_it_and_not_before(yard: Yard, looks: Looks) -> None:
    run = yard.begin(ago=MINUTES)
    worker = yard.work()
    taken(yard)
    yard.started(run, ago=MINUTES)
    worker.kill()
    until(lambda: _unlocked(yard, run.job))

    first = looks.look()
    assert first.mismatches == 0
    assert len(first.young) == 1
    assert looks.look(later=10).mismatches == 0
    assert looks.look(later=31).counts == {MismatchKind.ORPHANED: 1}


@pytest.mark.parametrize("status", ["crashed", "error", "canceled"])
def test_a_worker_that_runs_what_has_ended_for_n8n_is_unseen(yard: Yard, looks: Looks, status: str) -> None:
    run = yard.begin(ago=MINUTES)
    yard.work()
    taken(yard)
    yard.ended(run, status, ago=MINUTES)
    yard.update(run.execution, startedAt=None)

    pair = looks.sees(MismatchKind.UNSEEN, later=60)

    assert pair.id == run.execution
    assert pair.finding is not None
    assert pair.finding.repair is MismatchRepair.CANCEL
    assert pair.finding.fate == "It runs to its end: its effects stand, whatever status its execution has."


def test_workflows_that_failed_lately_are_counted_by_the_database(yard: Yard, looks: Looks) -> None:
    other = yard.workflow("Sync", "wfSync0000000001")
    for status, workflow, stopped in [
        ("error", "wfInvoices000001", 60), ("crashed", "wfInvoices000001", 60), ("success", "wfInvoices000001", 60),
        ("error", other, 3_000), ("canceled", other, 60), ("success", other, 60),
        ("error", other, 4_000), ("running", other, None),
    ]:  # fmt: skip
        yard.execution(status, workflow=workflow, ago=MINUTES, stopped=stopped)
    yard.execution("error", mode="manual", ago=MINUTES, stopped=60)
    yard.execution("error", ago=MINUTES, stopped=60, deleted=30)
    assert looks.look().error_rates == (
        ErrorRate("wfInvoices000001", "Invoices <b>& more</b>", 3, 4),
        ErrorRate(other, "Sync", 1, 2),
    )


def test_errors_that_cannot_be_counted_are_not_none(yard: Yard, looks: Looks, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = yard.execution("running", ago=MINUTES)
    monkeypatch.setattr(error_rates, "_ENDED", "(1)")  # a statement that PostgreSQL refuses
    truth = looks.settled()
    assert (truth.error_rates, truth.fault, [pair.id for pair in truth.pairs]) == (None, "", [lost])


CHILD = '[{"version":1,"executionData":"1","parentExecution":"2"},{},{"executionId":"3","workflowId":"4"},"%s","wf"]'


def child(yard: Yard, parent: str, *, ago: float = MINUTES - 10) -> str:
    """A sub-workflow that is going, as n8n writes it."""
    id = yard.execution("running", mode="integrated", ago=ago)
    yard.keeps(id, CHILD % parent)
    return id


@pytest.mark.parametrize("how", ["crashed", "failed for a lost job", "without a job"])
def test_the_child_of_a_lost_execution_is_told_although_an_older_worker_is_there(
    yard: Yard, looks: Looks, how: str
) -> None:
    yard.work()
    until(lambda: looks.snapshot().workers, what="a worker is connected")
    status = {"crashed": "crashed", "failed for a lost job": "error"}.get(how, "running")
    parent = yard.execution(status, stopped=None if status == "running" else 0)
    yard.keeps(parent, OVERWRITTEN if status == "error" else KEPT)
    orphan = child(yard, parent, ago=0)
    grandchild = child(yard, orphan, ago=0)

    truth = looks.settled(later=60)

    found = {pair.id: pair.finding for pair in truth.pairs if kinds(pair) is MismatchKind.DEAD_PARENT}

    assert sorted(found) == sorted([orphan, grandchild])
    one, other = found[orphan], found[grandchild]
    assert one is not None
    assert other is not None
    assert (one.parent, other.parent) == (parent, orphan)
    assert f"Its parent, execution {parent}, was lost with its worker." in one.evidence
    assert one.repair is MismatchRepair.CHECK


def test_the_child_of_one_that_lives_or_has_ended_is_not_told(yard: Yard, looks: Looks) -> None:
    run = yard.begin(ago=MINUTES)
    yard.work()
    taken(yard)
    yard.started(run, ago=MINUTES)
    failed, done = (yard.execution(status, ago=MINUTES, stopped=1) for status in ("error", "success"))
    yard.keeps(failed, KEPT)
    child(yard, run.execution)
    child(yard, failed)  # it may have been started without waiting for it
    child(yard, done)
    truth = looks.settled()
    assert (truth.pairs, truth.unsure_parents) == ((), 2)


def test_without_the_right_to_read_what_is_kept_the_parent_stays_unknown(yard: Yard, looks: Looks) -> None:
    yard.work()
    until(lambda: looks.snapshot().workers, what="a worker is connected")
    child(yard, yard.execution("crashed", stopped=0), ago=0)
    known = schema.cached_tables(as_sql_client(looks.registry.wire("n8n")), looks.n8n)
    as_sql_client(looks.registry.wire("n8n")).learn(("n8n", "public", ""), replace(known, reads_data=False))
    truth = looks.settled(later=60)
    assert (truth.pairs, truth.unsure_parents) == ((), 1)


@pytest.mark.parametrize(("late", "is_told"), [(110, False), (130, True)])
def test_a_wait_that_main_does_not_resume_is_told_after_two_minutes(
    yard: Yard, looks: Looks, late: float, is_told: bool
) -> None:
    waiting = yard.execution("waiting", ago=600, wait=late - 60)  # the second look is a minute ahead
    truth = looks.settled()
    assert [pair.id for pair in truth.pairs if kinds(pair) is MismatchKind.OVERDUE] == ([waiting] if is_told else [])
    assert truth.parked == 1
    if is_told:
        finding = truth.pairs[0].finding
        assert finding is not None
        assert finding.repair is MismatchRepair.CHECK_MAIN
        assert finding.evidence[-1] == "It was to resume 2 min ago."


def test_a_wait_whose_job_is_in_line_already_is_not_overdue(yard: Yard, looks: Looks) -> None:
    waiting = yard.execution("waiting", ago=600, wait=300)
    yard.enqueue(waiting)
    assert looks.settled().pairs == ()


@pytest.mark.parametrize("progress", ['{"kind":"abort-job"}', "-1"], ids=["n8n 1.55 and later", "before"])
def test_what_n8n_has_asked_its_worker_to_abort_is_told_as_that(yard: Yard, looks: Looks, progress: str) -> None:
    run = yard.begin(ago=MINUTES)
    yard.work()
    taken(yard)
    yard.store.client.hset(f"bull:jobs:{run.job}", "progress", progress)  # type: ignore[attr-defined]
    yard.ended(run, "canceled", ago=MINUTES)

    pair = looks.sees(MismatchKind.STOPPING, later=60)

    assert pair.id == run.execution
    assert pair.finding is not None
    assert pair.finding.repair is MismatchRepair.NONE
    assert pair.finding.fate.startswith("The job is removed when the running step returns.")


def test_a_long_progress_of_a_job_is_not_read(yard: Yard, looks: Looks) -> None:
    """A webhook's answer is reported there too, whole."""
    run = yard.begin(ago=MINUTES)
    yard.work()
    taken(yard)
    yard.store.client.hset(  # type: ignore[attr-defined]
        f"bull:jobs:{run.job}", "progress", '{"kind":"abort-job"}'.ljust(65)
    )
    yard.ended(run, "canceled", ago=MINUTES)
    assert looks.sees(MismatchKind.UNSEEN, later=60).id == run.execution


@pytest.mark.parametrize(
    ("status", "next_is"), [("success", "runs the workflow again"), ("crashed", "removes the job")]
)
def test_the_waiting_job_of_an_ended_execution_is_left(yard: Yard, looks: Looks, status: str, next_is: str) -> None:
    run = yard.begin(ago=MINUTES)
    yard.ended(run, status, ago=MINUTES)
    pair = looks.sees(MismatchKind.LEFT, later=60)

    assert pair.id == run.execution
    assert pair.finding is not None
    assert pair.finding.repair is MismatchRepair.REMOVE
    assert next_is in pair.finding.fate


def test_a_job_still_held_after_its_execution_ended_well_is_only_to_be_waited_for(yard: Yard, looks: Looks) -> None:
    run = yard.begin(ago=MINUTES)
    yard.work()
    taken(yard)
    yard.ended(run, "success", ago=MINUTES)
    pair = looks.sees(MismatchKind.LEFT, later=60)

    assert pair.finding is not None
    assert pair.finding.repair is MismatchRepair.NONE


@pytest.mark.parametrize("how", ["deleted", "marked deleted"])
def test_a_job_whose_execution_was_deleted_waits_for_nothing(yard: Yard, looks: Looks, how: str) -> None:
    run = yard.begin(ago=MINUTES)
    if how == "deleted":
        yard.delete(run.execution)
    else:
        yard.run('UPDATE {} SET "deletedAt" = now()')
    assert looks.look().mismatches == 0

    (pair,) = looks.look(later=31).pairs

    assert (pair.id, kinds(pair)) == (run.execution, MismatchKind.DELETED)
    assert pair.finding is not None
    assert pair.finding.repair is MismatchRepair.REMOVE
    assert pair.finding.fate == "No worker is connected: the next one to connect fails it: it finds no such execution."


def test_a_sub_workflow_is_told_when_everything_that_may_have_started_it_is_gone(yard: Yard, looks: Looks) -> None:
    child = yard.execution("running", mode="integrated", ago=MINUTES)
    yard.begin()  # with a queue it is known that no worker is connected
    pair = looks.sees(MismatchKind.DEAD_PARENT)

    assert pair.id == child
    assert pair.finding is not None
    assert pair.finding.repair is MismatchRepair.MARK


def test_a_sub_workflow_whose_parent_may_be_alive_is_only_counted(yard: Yard, looks: Looks) -> None:
    """Which execution started it stands in n8n's data, which is not read."""
    yard.execution("running", mode="manual", ago=MINUTES + 1)
    yard.execution("running", mode="integrated", ago=MINUTES)

    truth = looks.settled()

    assert (truth.mismatches, truth.unsure_parents) == (0, 1)


def test_a_sub_workflow_begun_before_a_worker_came_is_alone_and_one_begun_after_may_be_its(
    yard: Yard, looks: Looks
) -> None:
    """A parent that does not wait ends before its sub-workflow, which runs on in the same process."""
    old = yard.execution("running", mode="integrated", ago=MINUTES)
    yard.work()
    until(lambda: looks.snapshot().workers)
    yard.execution("running", mode="integrated", ago=-20)

    truth = looks.settled(later=60)

    assert [(pair.id, kinds(pair)) for pair in truth.pairs] == [(old, MismatchKind.DEAD_PARENT)]
    assert truth.unsure_parents == 1


def test_executions_that_wait_in_a_paused_queue_are_told_before_n8n_marks_them_crashed(
    yard: Yard, looks: Looks
) -> None:
    run = yard.begin(ago=MINUTES)
    yard.queue().pause()
    later = yard.begin(ago=MINUTES)

    truth = looks.look(later=60)

    assert {pair.id: kinds(pair) for pair in truth.pairs} == {
        run.execution: MismatchKind.PAUSED,
        later.execution: MismatchKind.PAUSED,
    }
    finding = truth.pairs[0].finding
    assert finding is not None
    assert finding.repair is MismatchRepair.RESUME
    assert "although its job waits" in finding.fate


def test_the_queues_of_worker_pools_belong_to_it(yard: Yard, looks: Looks) -> None:
    pooled = yard.begin(ago=MINUTES, pool="heavy")
    left = yard.begin(ago=MINUTES, pool="heavy")
    yard.ended(left, "error", ago=MINUTES)

    truth = looks.look(later=60)

    assert [(pair.id, kinds(pair)) for pair in truth.pairs] == [(left.execution, MismatchKind.LEFT)]
    assert [pair.id for pair in truth.matching] == [pooled.execution]
    assert truth.pairs[0].claim is not None
    assert truth.pairs[0].claim.job.queue.base == "bull:jobs-heavy"


def test_an_execution_that_ends_while_we_look_is_no_mismatch(yard: Yard, looks: Looks) -> None:
    lost = yard.execution("running", ago=MINUTES)
    stays = yard.execution("running", ago=MINUTES)

    assert looks.look().mismatches == 0
    truth = looks.look(later=31, between=lambda: yard.update(lost, status="success"))

    assert [pair.id for pair in truth.pairs] == [stays]


def test_a_job_that_ends_while_we_look_is_no_mismatch(yard: Yard, looks: Looks) -> None:
    run, stays = yard.begin(ago=MINUTES), yard.begin(ago=MINUTES)
    for one in (run, stays):
        yard.ended(one, "error", ago=MINUTES)

    truth = looks.look(later=60, between=lambda: yard.queue().call_job(run.job, "remove"))

    assert [pair.id for pair in truth.pairs] == [stays.execution]


def test_a_job_that_is_added_while_we_look_belongs_to_its_execution(yard: Yard, looks: Looks) -> None:
    execution = yard.execution("running", ago=MINUTES)

    looks.look()
    truth = looks.look(later=31, between=lambda: yard.enqueue(execution))

    assert truth.pairs == ()


def test_what_began_a_moment_ago_is_no_mismatch_yet(yard: Yard, looks: Looks) -> None:
    yard.execution("running", ago=10)

    assert looks.settled(later=-60).mismatches == 0
    assert looks.settled(later=30).counts == {MismatchKind.NO_JOB: 1}


def test_an_execution_whose_job_has_just_gone_has_n8ns_own_half_minute(yard: Yard, looks: Looks) -> None:
    """After a stall n8n's main waits so long for it to end well, whenever it began."""
    run = yard.begin(ago=MINUTES)
    yard.started(run, ago=MINUTES)
    looks.look()
    yard.queue().call_job(run.job, "remove")

    assert looks.look(later=60).mismatches == 0
    assert looks.look(later=85).mismatches == 0
    assert looks.look(later=95).counts == {MismatchKind.NO_JOB: 1}


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_is_known_by_its_tables(
    valkey: Store, postgresql: Postgresql, libraries: Fleet, tmp_path: Path, release: str
) -> None:
    yard = Yard(valkey, postgresql, libraries, release=release, schema="flows", prefix="p_")
    yard.workflow("Import")
    lost, kept = yard.execution("running", ago=MINUTES), yard.begin(ago=MINUTES)
    looks = Looks(tmp_path, yard.toml())

    truth = looks.settled()
    looks.close()

    expected = {"1.0": N8nRelease.OLD, "1.123": N8nRelease.ONE, "2.41": N8nRelease.TWO}[release]
    assert (truth.fault, truth.release, truth.notes) == ("", expected, ())
    assert [(pair.id, pair.title) for pair in truth.pairs] == [(lost, "Import")]
    assert [pair.id for pair in truth.matching] == [kept.execution]
    assert truth.pairs[0].execution is not None
    assert truth.pairs[0].execution.began_at == pytest.approx(truth.checked_at - (MINUTES + 60) * 1000, abs=20_000)


def _unlocked(yard: Yard, job: str) -> bool:
    client = yard.store.client  # type: ignore[attr-defined]
    return not client.exists(f"bull:jobs:{job}:lock")
