"""What becomes of an execution whose worker is lost, in n8n itself, and what Unstall lists of it.

Before 2.0 the stalled check of another worker puts the job back, and the workflow runs again from its start. From 2.0
on it fails the job, and main writes `error` over all that was kept.
"""

from __future__ import annotations

import pytest

from tests.support.n8n.n8n_console import EXECUTIONS, act, at_work, handed_over, is_abandoned, listed, mismatches
from tests.support.n8n.n8n_flows import SlowServer, chain, slow_step, step, webhook
from tests.support.n8n.n8n_real import RealN8n
from tests.support.processes.site import Site
from tests.support.waiting import until

pytestmark = [pytest.mark.n8n, pytest.mark.timeout(900), pytest.mark.usefixtures("clean")]

ERROR = 90  # seconds until 2.41 has written `error`: the lock, the check, and 30 s in which it may end well after all
CHECK = 60  # until a worker's check has put a job back


def is_failed(n8n: RealN8n, slow: SlowServer, execution: str) -> None:
    """As 2.x leaves it: an error of which nothing can be run again, and it ran once."""
    until(lambda: n8n.status(execution) == "error", ERROR, "n8n has failed it")
    assert slow.runs(execution) == 1
    assert not n8n.job_of(execution)


def test_one_killed_beside_a_living_one_is_failed_and_wiped_by_2_and_run_again_by_1(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    n8n.start_worker("one")
    execution, _ = at_work(n8n, slow)
    n8n.start_worker("two")
    n8n.kill("one")
    if n8n.is_two:
        is_failed(n8n, slow, execution)
        refused = act(site, "retry-execution", EXECUTIONS, execution, "--consent", "--force")
        assert (refused["outcome"], "without doing anything" in refused["why"]) == ("refused", True), refused
    else:
        until(lambda: slow.runs(execution) == 2, CHECK, "the other one runs it again")
        slow.let_go()
        until(lambda: n8n.status(execution) == "success", 30, "it has ended")
    assert execution not in mismatches(site)


def test_of_the_only_one_the_execution_runs_for_ever_until_another_one_comes(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    n8n.start_worker()
    execution, job = at_work(n8n, slow)
    n8n.kill()
    until(lambda: is_abandoned(site, job), 90, "it is abandoned in /stuck")
    line = listed(site, execution, "job orphaned")
    assert (line["job"], line["state"], line["locked"], line["repair"]) == (job, "active", False, "fail")
    assert (n8n.status(execution), n8n.job_of(execution), n8n.held_job_of(execution)) == ("running", job, "")
    n8n.start_worker("another")
    if n8n.is_two:
        is_failed(n8n, slow, execution)
    else:
        until(lambda: slow.runs(execution) == 2, CHECK, "it runs again")
        slow.let_go()
        until(lambda: n8n.status(execution) == "success", 30, "it has ended")
    assert execution not in mismatches(site)


def test_one_told_to_end_finishes_what_ends_in_time(n8n: RealN8n, site: Site, slow: SlowServer) -> None:
    n8n.start_worker()
    execution, _ = at_work(n8n, slow)
    n8n.terminate("worker")
    slow.let_go()
    n8n.await_end("worker")
    assert (n8n.status(execution), n8n.job_of(execution)) == ("success", "")
    assert mismatches(site) == {}


def test_one_told_to_end_leaves_what_outlasts_its_time_to_the_next(n8n: RealN8n, site: Site, slow: SlowServer) -> None:
    n8n.start_worker()
    execution, job = at_work(n8n, slow)
    n8n.terminate("worker")
    n8n.await_end("worker")
    assert (n8n.status(execution), n8n.job_of(execution)) == ("running", job)
    until(lambda: is_abandoned(site, job), 90, "it is abandoned in /stuck")
    assert listed(site, execution, "job orphaned")["job"] == job


def test_a_frozen_one_loses_its_job_and_2_runs_it_no_second_time(n8n: RealN8n, site: Site, slow: SlowServer) -> None:
    n8n.start_worker("one")
    execution, _ = at_work(n8n, slow)
    n8n.start_worker("two")
    n8n.freeze("one")
    if n8n.is_two:
        is_failed(n8n, slow, execution)
    else:
        until(lambda: slow.runs(execution) == 2, CHECK, "the other one runs it too")
    n8n.thaw("one")
    slow.let_go()
    until(lambda: n8n.status(execution) == "success", 30, "what it did stands")
    assert slow.runs(execution) == (1 if n8n.is_two else 2)
    until(lambda: not n8n.has_jobs(), 30, "its job is gone")
    assert execution not in mismatches(site)


def test_after_a_restart_of_main_2_leaves_what_a_lost_worker_ran_running_for_ever(
    n8n: RealN8n, site: Site, slow: SlowServer
) -> None:
    n8n.start_worker("one")
    execution, _ = at_work(n8n, slow)
    n8n.kill("main")
    n8n.start_main()
    n8n.start_worker("two")
    n8n.kill("one")
    if n8n.is_two:
        until(lambda: not n8n.job_of(execution), CHECK, "the other one's check has failed the job")
        line = listed(site, execution, "no job")
        assert (n8n.status(execution), line["repair"], slow.runs(execution)) == ("running", "mark crashed", 1)
        _mark_crashed(site, execution)
    else:
        until(lambda: slow.runs(execution) == 2, CHECK, "the other one runs it again")
        slow.let_go()
        until(lambda: n8n.status(execution) == "success", 30, "it has ended")
    assert execution not in mismatches(site)


def test_a_sub_workflow_whose_parent_died_with_its_worker_is_listed_and_marked(
    n8n: RealN8n, site: Site, slow: SlowServer, parent: str
) -> None:
    n8n.start_worker()
    execution = handed_over(n8n, parent)
    child = until(lambda: _child(n8n, execution), 30, "the sub-workflow")
    until(lambda: slow.runs(child) == 1, 30, "it runs")
    n8n.kill()
    n8n.start_worker("another")
    if n8n.is_two:
        until(lambda: n8n.status(execution) == "error", ERROR, "n8n has failed the parent")
    else:
        until(lambda: _child(n8n, execution) != child, CHECK, "the parent runs again, with another sub-workflow")
        slow.let_go()
        until(lambda: n8n.status(execution) == "success", 30, "it has ended")
    line = listed(site, child, "parent gone")
    assert (line["status"], line["job"], line["repair"]) == ("running", None, "mark crashed")
    assert n8n.status(child) == "running"
    _mark_crashed(site, child)
    assert n8n.status(child) == "crashed"


@pytest.fixture(scope="module")
def parent(n8n: RealN8n, key: str, slow: SlowServer) -> str:
    """The webhook of a workflow that starts another one, and waits for it."""
    trigger = step("When it is called", "executeWorkflowTrigger", 1, {})
    child = n8n.add(
        chain("Is called", trigger, slow_step(slow.url)), active=n8n.is_two
    )  # 1.x: nothing in it to switch on
    chosen = {"workflowId": {"__rl": True, "mode": "id", "value": child}, "options": {"waitForSubWorkflow": True}}
    n8n.add(chain("Calls another", webhook("parent"), step("Another", "executeWorkflow", 1.1, chosen)))
    return "parent"


def _child(n8n: RealN8n, parent: str) -> str:
    """The newest execution that began after this one."""
    newest = str(n8n.newest())
    return newest if newest != parent else ""


def _mark_crashed(site: Site, execution: str) -> None:
    """The shell lists by itself; the action believes the scheduler's comparison, which follows within seconds."""
    until(lambda: act(site, "mark-crashed", EXECUTIONS, execution)["outcome"] == "done", 60, "it is marked")
