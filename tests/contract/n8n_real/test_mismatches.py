"""Contradictions between Redis and the database as a real n8n leaves them: that they are listed, what was predicted of
each and what n8n then did; and that nothing is listed where all is well.
"""

from __future__ import annotations

import json

import pytest

from tests.support.n8n.n8n_console import (
    EXECUTIONS,
    JOBS,
    act,
    at_work,
    compared,
    done,
    handed_over,
    listed,
    mismatches,
)
from tests.support.n8n.n8n_flows import SlowServer
from tests.support.n8n.n8n_real import RealN8n
from tests.support.processes.site import Site
from tests.support.waiting import until

pytestmark = [pytest.mark.n8n, pytest.mark.timeout(900), pytest.mark.usefixtures("clean")]

BURST = 40
AGAIN, AWAY, FAILED = "runs the workflow again", "removes the job without running it", "fails it"


def test_a_burst_through_main_and_webhook_processor_with_a_rolling_restart_is_none(n8n: RealN8n, site: Site) -> None:
    n8n.start_worker("one")
    n8n.start_worker("two")
    ports = (n8n.port, n8n.start_webhooks())
    before = n8n.newest()
    for number in range(BURST):
        assert n8n.call("short", ports[number % 2]).status_code == 200
        if number == BURST // 2:
            n8n.terminate("one")
            n8n.start_worker("three")

    def is_over() -> bool:
        assert mismatches(site) == {}
        return not n8n.has_jobs()

    until(is_over, 120, "all have run")
    n8n.await_end("one")
    ended = n8n.rows("SELECT status, count(*) FROM execution_entity WHERE id > %s GROUP BY status", before)
    assert ended == [("success", BURST)]
    assert mismatches(site) == {}


def test_a_job_of_an_ended_or_deleted_execution_is_listed_and_n8n_does_what_was_predicted(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    predicted = {"success": AGAIN, "error": AGAIN, "canceled": AGAIN, "crashed": AWAY}
    left = {status: handed_over(n8n, "slow") for status in predicted}
    deleted = [handed_over(n8n, "slow") for _ in range(2)]
    for status, execution in left.items():
        n8n.set_ended(execution, status)
    n8n.delete(deleted[0])
    n8n.rows("DELETE FROM execution_entity WHERE id = %s RETURNING id", int(deleted[1]))
    lines = {status: listed(site, execution, "job left") for status, execution in left.items()}
    assert {status: predicted[status] in line["fate"] for status, line in lines.items()} == dict.fromkeys(left, True)
    assert {line["repair"] for line in lines.values()} == {"remove"}
    assert all(FAILED in listed(site, execution, "execution deleted")["fate"] for execution in deleted)
    slow.let_go()
    n8n.start_worker()
    until(lambda: not n8n.has_jobs(), 60, "a worker has taken them all")
    assert {status: slow.runs(execution) for status, execution in left.items()} == {
        status: int(fate == AGAIN) for status, fate in predicted.items()
    }
    assert [slow.runs(execution) for execution in deleted] == [0, 0]
    assert n8n.status(left["crashed"]) == "crashed"


def test_what_is_cancelled_in_the_editor_is_aborted_by_its_worker_and_leaves_nothing(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    n8n.start_worker()
    execution, job = at_work(n8n, slow)
    n8n.stop(execution)
    until(lambda: n8n.status(execution) == "canceled", 10, "it is canceled")
    until(lambda: _is_aborting(n8n, job), 10, "its worker was told")
    slow.let_go()
    until(lambda: not n8n.has_jobs(), 30, "its step has ended, and the job")
    assert (n8n.status(execution), slow.runs(execution)) == ("canceled", 1)
    assert execution not in mismatches(site)


def _is_aborting(n8n: RealN8n, job: str) -> bool:
    told = n8n.store.client.hget(f"bull:jobs:{job}", "progress")
    return not n8n.store.client.exists(f"bull:jobs:{job}") or b"abort-job" in (told or b"")


def test_what_is_cancelled_in_the_editor_after_its_worker_died_leaves_a_job_in_2_that_is_removed(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    """2.41 only tells the worker, which is gone. Main of 1.123 fails the job itself, without a lock."""
    n8n.start_worker()
    execution, job = at_work(n8n, slow)
    n8n.kill()
    n8n.stop(execution)
    until(lambda: n8n.status(execution) == "canceled", 10, "it is canceled")
    if n8n.is_two:
        line = listed(site, execution, "job left")
        assert (line["job"], line["state"], line["repair"]) == (job, "active", "remove")
        done(act(site, "remove", JOBS, job))
    else:
        until(lambda: not n8n.has_jobs(), 30, "the job is failed and gone")
        assert execution not in mismatches(site)
    assert not n8n.store.client.exists(f"bull:jobs:{job}")
    n8n.start_worker()
    assert (n8n.status(execution), slow.runs(execution)) == ("canceled", 1)


def test_what_a_flush_lost_is_listed_as_without_a_job_and_what_runs_ends_by_itself(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    n8n.start_worker(concurrency=1)
    running, _ = at_work(n8n, slow)
    waiting = [handed_over(n8n, "slow") for _ in range(2)]
    n8n.store.flush()
    assert listed(site, running, "no job")["repair"] == "check the workers"  # one of them may run it, and does
    for execution in waiting:
        assert listed(site, execution, "no job")["repair"] == "mark crashed"
    slow.let_go()
    until(lambda: n8n.status(running) == "success", 30, "its worker has written how it ended")
    until(lambda: running not in mismatches(site), 30, "it is listed no more")
    assert [(n8n.status(execution), slow.runs(execution)) for execution in waiting] == [("new", 0)] * 2
    for execution in waiting:
        done(act(site, "mark-crashed", EXECUTIONS, execution))
        assert n8n.status(execution) == "crashed"
    assert mismatches(site) == {}


def test_what_waits_in_a_paused_queue_is_listed_and_crashed_by_the_next_start_of_main(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    n8n.pause()
    execution = handed_over(n8n, "slow")
    line = listed(site, execution, "queue paused")
    assert (line["repair"], "n8n marks it crashed" in line["fate"]) == ("resume", True)
    n8n.kill("main")
    n8n.start_main()
    until(lambda: n8n.status(execution) == "crashed", 60, "n8n marks it")
    until(lambda: mismatches(site).get(execution, line)["mismatch"] == "job left", 120, "it is listed as that")
    assert AWAY in mismatches(site)[execution]["fate"]
    done(act(site, "resume", JOBS, ""))
    slow.let_go()
    n8n.start_worker()
    until(lambda: not n8n.has_jobs(), 30, "a worker has taken it")
    assert (n8n.status(execution), slow.runs(execution)) == ("crashed", 0)


def test_a_queue_of_n8n_is_not_paused_by_us(n8n: RealN8n, site: Site) -> None:
    handed_over(n8n, "slow")
    refused = act(site, "pause", JOBS, "")
    assert (refused["outcome"], "crashed" in refused["why"]) == ("refused", True), refused


def test_while_its_database_is_away_nothing_is_compared_and_afterwards_nothing_is_wrong(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    n8n.start_worker()
    execution, _ = at_work(n8n, slow)
    n8n.postgres.stop()
    try:
        asked = site.shell("n8n", "--json")
        assert asked.returncode == 4
        [found] = json.loads(asked.stdout)["n8n"]
        assert found["fault"]
        assert found["mismatches"] == []
    finally:
        n8n.postgres.start()
    until(lambda: compared(site)["fault"] is None, 60, "it is compared again")
    slow.let_go()
    until(lambda: n8n.status(execution) == "success", 60, "n8n has connected again, and it ends")
    assert mismatches(site) == {}


def test_when_redis_is_away_n8n_exits_and_what_ran_is_listed_until_main_starts_again(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    n8n.start_worker()
    execution, _ = at_work(n8n, slow)
    n8n.store.stop()
    n8n.await_end("worker", 60)
    n8n.await_end("main", 60)
    assert site.shell("orphans", "--json").returncode == 4
    n8n.store.start()
    assert n8n.status(execution) == "running"
    assert "n8n marks it crashed" in listed(site, execution, "no job")["fate"]
    n8n.start_main()
    until(lambda: n8n.status(execution) == "crashed", 60, "as was predicted")
    assert (slow.runs(execution), mismatches(site)) == (1, {})
