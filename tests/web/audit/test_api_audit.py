"""/audit and /orphans of the API: what was done, what comes back, and what wants an eye."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.accounts.token_scopes import TokenScope
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.types import LossCause, StuckJob, Verdict, VerdictKind
from recovery.reads.stuck import inbox_store
from recovery.stores.registry import registry
from tests.support.machines import Machine, refused, told
from tests.support.stuck.watching import now_ms
from tests.web.api.test_api_actions import BASE, QUEUE, failed, order
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db


@pytest.fixture
def machine() -> Machine:
    return Machine(*TokenScope)


def test_what_was_done_is_listed_newest_first(desk: Desk, machine: Machine) -> None:
    failed(desk, "1", "2")
    for id in ("1", "2"):
        told(machine.post("actions", order("retry", id)))
    page = told(machine.get("audit"))
    assert [entry["job"] for entry in page["entries"]] == ["2", "1"]
    assert {entry["status"] for entry in page["entries"]} == {"done"}
    first = told(machine.get("audit", size=1))
    assert [entry["job"] for entry in told(machine.get("audit", size=1, cursor=first["next"]))["entries"]] == ["1"]


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"actor": "machine"}, 1),
        ({"actor": "nobody"}, 0),
        ({"act": "retry"}, 1),
        ({"act": "remove"}, 0),
        ({"queue": QUEUE}, 1),
        ({"queue": "main/bull:other"}, 0),
        ({"queue": QUEUE, "job": "1"}, 1),
        ({"queue": QUEUE, "job": "2"}, 0),
        ({"outcome": "done"}, 1),
        ({"outcome": "refused"}, 0),
        ({"since": 1}, 1),
        ({"until": 1}, 0),
    ],
    ids=str,
)
def test_the_audit_is_filtered(desk: Desk, machine: Machine, query: dict[str, Any], count: int) -> None:
    failed(desk, "1")
    told(machine.post("actions", order("retry", "1")))
    assert len(told(machine.get("audit", **query))["entries"]) == count


@pytest.mark.parametrize(
    "query",
    [
        {"actor": "a\x00b"},
        {"act": "\x00"},
        {"queue": "x"},
        {"queue": QUEUE, "job": "~zz"},
        {"outcome": "so so"},
        {"since": "-1"},
        {"until": "9" * 30},
        {"cursor": "x"},
        {"size": 201},
    ],
    ids=str,
)
def test_a_filter_that_makes_no_sense_is_told_why(desk: Desk, machine: Machine, query: dict[str, Any]) -> None:
    refused(machine.get("audit", **query), 422, "invalid")


def test_one_entry_says_how_each_job_was_and_is(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    (result,) = told(machine.post("actions", order("retry", "1")))["results"]
    entry = told(machine.get(f"audit/{result['audit']}"))
    (job,) = entry["jobs"]
    assert (job["before"]["state"], job["after"]["state"], job["outcome"]) == ("failed", "waiting", "done")
    assert entry["reason"] == "host is back"
    assert len(entry["hash"]) == 64


@pytest.mark.parametrize(("number", "status"), [("77", 404), ("0", 422), ("x", 422), ("9" * 30, 422)])
def test_an_entry_that_is_not_there(desk: Desk, machine: Machine, number: str, status: int) -> None:
    assert machine.get(f"audit/{number}").status_code == status
    assert machine.post(f"audit/{number}/restore", {"reason": "x"}).status_code == status


def test_the_entry_of_a_run_over_named_jobs_can_be_read(desk: Desk) -> None:
    """It holds their number, not the jobs."""
    failed(desk, "1")
    machine = Machine(TokenScope.BULK, TokenScope.AUDIT, name="bulk")
    wanted = {"act": "retry", "queue": QUEUE, "jobs": [{"id": "1"}], "reason": "host is back"}
    told(machine.post("bulk", wanted), 202)
    (line,) = told(machine.get("audit"))["entries"]
    assert told(machine.get(f"audit/{line['number']}"))["jobs"] == []


def test_what_was_removed_comes_back(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    before = desk.client.hgetall(f"{BASE}:1")
    (result,) = told(machine.post("actions", order("remove", "1")))["results"]
    assert result["outcome"] == "done"
    assert not desk.client.exists(f"{BASE}:1")
    path = f"audit/{result['audit']}/restore"
    refused(machine.post(path, {}), 422, "invalid")
    back = told(machine.post(path, {"reason": "removed by mistake"}))
    assert [one["outcome"] for one in back["results"]] == ["done"]
    assert desk.client.hgetall(f"{BASE}:1") == before
    refused(machine.post(path, {"reason": "again"}), 404, "missing")


# -- orphans


def stuck(base: str, id: str, kind: VerdictKind, cause: LossCause = LossCause.CRASHED) -> StuckJob:
    ref = QueueRef("main", base).job(id)
    verdict = Verdict(kind, ("Its worker is gone.",), cause, "no connection", "Nothing, for ever.")
    return StuckJob(ref, "mail", verdict, now_ms(), "mail-3", JobRow(ref, JobState.ACTIVE, processed_at=5), None)


def published(*rows: StuckJob) -> None:
    tallies = (StuckTally(QueueRef("main", BASE), {VerdictKind.ABANDONED: len(rows)}, people=len(rows)),)
    inbox_store.publish(registry().state(), StuckInbox(now_ms(), rows, tallies, ("us does not answer.",)))


def test_orphans_come_with_why_and_what_happens(desk: Desk, machine: Machine) -> None:
    published(stuck(BASE, "1", VerdictKind.ABANDONED))
    page = told(machine.get("orphans"))
    assert (page["people"], page["matched"], page["next"], page["faults"]) == (1, 1, None, ["us does not answer."])
    (orphan,) = page["orphans"]
    assert (orphan["id"], orphan["queue"]["id"], orphan["holder"]) == ("1", BASE, "mail-3")
    assert orphan["verdict"]["kind"] == "abandoned"
    assert orphan["verdict"]["fate"] == "Nothing, for ever."
    assert orphan["seen"]["processed_at"] == 5


def test_orphans_are_filtered_and_paged(desk: Desk, machine: Machine) -> None:
    published(
        *(stuck(BASE, str(index), VerdictKind.ABANDONED) for index in range(3)),
        stuck("bull:a/b", "\udcff", VerdictKind.WORKER_LOST, LossCause.STARVED),
    )
    assert told(machine.get("orphans", verdict="worker-lost"))["orphans"][0]["id"] == "~FF"
    assert told(machine.get("orphans", cause="starved"))["matched"] == 1
    assert told(machine.get("orphans", queue="main/bull:a~2Fb"))["matched"] == 1
    first = told(machine.get("orphans", queue=QUEUE, size=2))
    second = told(machine.get("orphans", queue=QUEUE, size=2, cursor=first["next"]))
    assert [orphan["id"] for orphan in first["orphans"] + second["orphans"]] == ["0", "1", "2"]
    assert second["next"] is None


@pytest.mark.parametrize("query", [{"verdict": "sad"}, {"cause": "x"}, {"queue": "x"}, {"size": 0}, {"cursor": "-1"}])
def test_a_question_that_makes_no_sense_is_told_why(desk: Desk, machine: Machine, query: dict[str, Any]) -> None:
    published()
    refused(machine.get("orphans", **query), 422, "invalid")


def test_nobody_having_looked_is_not_all_clear(desk: Desk, machine: Machine) -> None:
    answer = machine.get("orphans")
    refused(answer, 503, "not_looked")
    assert answer["Retry-After"]


def test_an_outage_of_the_state_store_is_told_as_one(desk: Desk, machine: Machine) -> None:
    desk.state.pause()
    try:
        refused(machine.get("orphans"), 503, "store_timed_out")
    finally:
        desk.state.resume()
