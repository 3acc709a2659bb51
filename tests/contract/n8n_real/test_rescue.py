"""Executions whose worker is killed beside a living one, on a real n8n 2.41: copied, lost by n8n, and rescued once.

Before 2.0 n8n runs such an execution again by itself, so there is nothing to rescue.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.n8n.n8n_console import EXECUTIONS, act, at_work
from tests.support.n8n.n8n_flows import SlowServer
from tests.support.n8n.n8n_real import RealN8n
from tests.support.processes.site import Site
from tests.support.waiting import until

pytestmark = [pytest.mark.n8n, pytest.mark.timeout(900)]


@pytest.fixture
def two(n8n: RealN8n, clean: None) -> RealN8n:
    """n8n 2 with one worker; another is started when it has something to run."""
    if not n8n.is_two:
        pytest.skip("n8n before 2.0 puts the job of a dead worker back")
    n8n.start_worker("one")
    return n8n


def killed(n8n: RealN8n, slow: SlowServer) -> str:
    """An execution in the midst of its one step, whose worker was killed beside a living one."""
    execution, _ = at_work(n8n, slow)
    n8n.start_worker("two")
    n8n.kill("one")
    return execution


def loss_of(site: Site, execution: str) -> dict[str, Any]:
    """Its line in the history; {} while there is none."""
    found = json.loads(site.shell("n8n", "--lost", "--json").stdout or '{"losses": []}')["losses"]
    return next((loss for loss in found if loss["execution"] == execution), {})


def rescued_in_time(n8n: RealN8n, site: Site, execution: str) -> dict[str, Any] | None:
    """The result of the first rescue that is not refused; None when n8n was faster."""

    def tried() -> dict[str, Any] | str | None:
        told = act(site, "rescue", EXECUTIONS, execution, "--consent")
        if told["outcome"] == "done":
            return told
        return "late" if n8n.status(execution) == "error" else None

    found = until(tried, 90, "it is rescued, or an error")
    return found if isinstance(found, dict) else None


def made_of(n8n: RealN8n, execution: str) -> list[str]:
    return [str(id) for (id,) in n8n.rows('SELECT id FROM execution_entity WHERE "retryOf" = %s', execution)]


def test_it_is_rescued_before_n8n_overwrites_it_and_runs_again_once(
    two: RealN8n, site: Site, key: str, slow: SlowServer
) -> None:
    execution = killed(two, slow)
    until(lambda: loss_of(site, execution).get("copied_at"), 60, "its data was copied")
    assert two.status(execution) == "running"
    told = rescued_in_time(two, site, execution)
    assert told is not None, loss_of(site, execution)
    (made,) = made_of(two, execution)
    until(lambda: slow.runs(made) == 1, 60, "the new execution has begun its step")
    slow.let_go()
    until(lambda: two.status(made) == "success", 60, "it has run to its end")
    until(lambda: two.status(execution) == "error", 60, "n8n has ended the old one")
    assert loss_of(site, execution)["outcome"] == "rescued"
    again = act(site, "rescue", EXECUTIONS, execution, "--consent", "--force")
    assert (again["outcome"], made_of(two, execution)) == ("refused", [made])
    assert (slow.runs(execution), slow.runs(made)) == (1, 1)


def test_what_n8n_has_overwritten_is_restored_and_retried_once(
    two: RealN8n, site: Site, key: str, slow: SlowServer
) -> None:
    execution = killed(two, slow)
    until(lambda: two.status(execution) == "error", 120, "n8n has ended it")
    until(lambda: loss_of(site, execution).get("outcome") == "lost", 60, "it is in the history as lost")
    loss = loss_of(site, execution)
    assert (loss["rescue"], loss["rescue_open"]) == ("restore", True), loss
    refused = act(site, "retry-execution", EXECUTIONS, execution, "--consent", "--force")
    assert "without doing anything" in refused["why"]
    told = act(site, "rescue", EXECUTIONS, execution, "--consent")
    assert told["outcome"] == "done", told
    assert told["why"].startswith("Its data was restored from the copy.")
    (made,) = made_of(two, execution)
    until(lambda: slow.runs(made) == 1, 60, "the new execution has begun its step")
    slow.let_go()
    until(lambda: two.status(made) == "success", 60, "it has run to its end")
    assert loss_of(site, execution)["outcome"] == "retried"
    assert slow.runs(execution) == 1


def test_one_whose_worker_was_only_frozen_is_not_run_beside_it(
    two: RealN8n, site: Site, key: str, slow: SlowServer
) -> None:
    execution, _ = at_work(two, slow)
    two.start_worker("two")
    two.freeze("one")
    until(lambda: loss_of(site, execution).get("copied_at"), 60, "its data was copied")
    two.thaw("one")
    slow.let_go()
    until(lambda: two.status(execution) == "success", 60, "its worker has ended it")
    until(lambda: not loss_of(site, execution), 60, "the history has forgotten it")
    assert made_of(two, execution) == []
