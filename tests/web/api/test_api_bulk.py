"""/bulk of the API: a run is ordered, watched and stopped; the scheduler does it."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.accounts.token_scopes import TokenScope
from recovery.models import AuditEntry, BulkItem, BulkRun
from tests.support.machines import Machine, refused, told
from tests.web.api.test_api_actions import BASE, QUEUE, failed
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db


@pytest.fixture
def machine() -> Machine:
    return Machine(TokenScope.BULK)


def wanted(**changed: Any) -> dict[str, Any]:
    return {"act": "retry", "queue": QUEUE, "reason": "host is back", "all": "failed"} | changed


def test_a_run_is_accepted_and_shown(desk: Desk, machine: Machine) -> None:
    failed(desk, "1", "2")
    run = told(machine.post("bulk", wanted()), 202)
    assert (run["status"], run["act"], run["actor"], run["queue"]["id"]) == ("waiting", "retry", "machine", BASE)
    assert run["selection"]["state"] == "failed"
    assert told(machine.get(f"bulk/{run['id']}")) == run
    assert told(machine.get("bulk"))["runs"] == [run]
    assert desk.client.zcard(f"{BASE}:failed") == 2, "it is the scheduler's work"
    assert AuditEntry.objects.get().actor_kind == "token"


def test_jobs_by_name_are_those_that_are_there_now(desk: Desk, machine: Machine) -> None:
    failed(desk, "1", "2")
    run = told(machine.post("bulk", wanted(all="", jobs=[{"id": "2"}, {"id": "nope"}])), 202)
    assert run["total"] == 2
    assert list(BulkItem.objects.order_by("place").values_list("job", flat=True)) == ["2", "nope"]
    results = told(machine.get(f"bulk/{run['id']}/results", size=1))
    assert [(one["job"], one["outcome"]) for one in results["results"]] == [("2", "")]
    rest = told(machine.get(f"bulk/{run['id']}/results", size=1, cursor=results["next"]))
    assert [one["job"] for one in rest["results"]] == ["nope"]
    assert rest["next"] is None


def test_results_are_filtered_by_outcome(desk: Desk, machine: Machine) -> None:
    failed(desk, "1", "2")
    run = told(machine.post("bulk", wanted(all="", jobs=[{"id": "1"}, {"id": "2"}])), 202)
    BulkItem.objects.filter(job="2").update(outcome="refused", why="It is active now.")
    (one,) = told(machine.get(f"bulk/{run['id']}/results", outcome="refused"))["results"]
    assert (one["job"], one["why"]) == ("2", "It is active now.")
    assert [left["job"] for left in told(machine.get(f"bulk/{run['id']}/results", outcome="left"))["results"]] == ["1"]


def test_a_run_is_stopped_once_and_stays_stopped(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    run = told(machine.post("bulk", wanted()), 202)
    assert told(machine.post(f"bulk/{run['id']}/stop"))["wants_stop"] is True
    told(machine.post(f"bulk/{run['id']}/stop"))
    BulkRun.objects.update(status="ended", wants_stop=False)
    assert told(machine.post(f"bulk/{run['id']}/stop"))["wants_stop"] is False


def test_all_of_a_verdict_is_a_selection(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    run = told(machine.post("bulk", wanted(act="requeue", all="abandoned")), 202)
    assert (run["selection"]["state"], run["selection"]["verdict"]) == ("active", "abandoned")


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"all": "somewhere"}, "bad_order"),
        ({"all": ""}, "bad_order"),
        ({"act": "pause", "all": ""}, "bad_order"),
        ({"act": "drain"}, "bad_order"),
        ({"reason": ""}, "invalid"),
        ({"reason": " "}, "invalid"),
        ({"queue": "x"}, "invalid"),
        ({"jobs": [{"id": "1"}] * 5001}, "invalid"),
        ({"options": {"is_late": True}}, "invalid"),
        ({"surprise": 1}, "invalid"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_run_that_makes_no_sense_is_told_why(
    desk: Desk, machine: Machine, changed: dict[str, Any], code: str
) -> None:
    failed(desk, "1")
    refused(machine.post("bulk", wanted(**changed)), 422, code)
    assert not BulkRun.objects.exists()


@pytest.mark.parametrize(("number", "status"), [("77", 404), ("0", 422), ("x", 422), ("9" * 30, 422)])
def test_a_run_that_is_not_there(desk: Desk, machine: Machine, number: str, status: int) -> None:
    for path in (f"bulk/{number}", f"bulk/{number}/results"):
        assert machine.get(path).status_code == status
    assert machine.post(f"bulk/{number}/stop").status_code == status


def test_a_run_of_a_queue_that_is_not_there_is_404(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    refused(machine.post("bulk", wanted(queue="main/bull:none")), 404, "queue_missing")
