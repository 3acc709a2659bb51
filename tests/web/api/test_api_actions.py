"""/actions of the API: the rules and the audit of every button, one result a job, and no way around either."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import OperationalError

from dashboard.accounts.token_scopes import TokenScope
from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import encode_name, slug
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.models import AuditEntry
from recovery.reads.queues import snapshot_store
from recovery.stores.registry import registry
from tests.support.machines import Machine, refused, told
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db
BASE = "bull:mail"
QUEUE = f"main/{BASE}"


@pytest.fixture
def machine() -> Machine:
    return Machine(TokenScope.READ, TokenScope.ACT, TokenScope.BULK, TokenScope.AUDIT)


def failed(desk: Desk, *ids: str) -> None:
    bullmq(desk.client, BASE)
    now = now_ms()
    for id in ids:
        add(desk.client, BASE, id, processedOn=now, finishedOn=now, attemptsMade=1, failedReason="no route")
        desk.client.lrem(f"{BASE}:wait", 1, id)
        desk.client.zadd(f"{BASE}:failed", {id: now})
    desk.look(BASE)


def orphaned(desk: Desk, id: str = "1") -> None:
    """Active, without a lock: on BullMQ 5 one look is proof."""
    bullmq(desk.client, BASE)
    add(desk.client, BASE, id, processedOn=now_ms() - 60_000, ats=1)
    desk.client.lrem(f"{BASE}:wait", 1, id)
    desk.client.lpush(f"{BASE}:active", id)
    desk.look(BASE)


def order(act: str = "retry", *ids: str, **changed: Any) -> dict[str, Any]:
    return {"act": act, "queue": QUEUE, "jobs": [{"id": id} for id in ids], "reason": "host is back"} | changed


def outcomes(answer: Any) -> dict[str, str]:
    return {result["job"]: result["outcome"] for result in answer["results"]}


def test_an_act_is_done_and_told_job_by_job(desk: Desk, machine: Machine) -> None:
    failed(desk, "1", "2")
    done = told(machine.post("actions", order("retry", "1", "nope", "2")))
    assert done["action"] == "retry"
    assert (done["queue"]["deployment"], done["queue"]["id"]) == ("main", BASE)
    assert outcomes(done) == {"1": "done", "nope": "missing", "2": "done"}
    assert set(done["results"][0]) == {"job", "label", "outcome", "why", "audit", "affected", "affected_total"}
    assert desk.client.zcard(f"{BASE}:failed") == 0
    assert desk.client.llen(f"{BASE}:wait") == 2


def test_the_audit_says_which_token_it_was_and_why(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    (result,) = told(machine.post("actions", order("retry", "1")))["results"]
    entry = AuditEntry.objects.get(number=result["audit"])
    assert (entry.phase, entry.actor_kind, entry.actor, entry.address) == ("outcome", "token", "machine", "127.0.0.1")
    assert entry.reason == "host is back"
    assert machine.token not in "".join(AuditEntry.objects.values_list("body", flat=True))


def test_an_orphan_goes_back_to_wait(desk: Desk, machine: Machine) -> None:
    orphaned(desk)
    (job,) = told(machine.get(f"queues/{QUEUE}/jobs", state="active"))["jobs"]
    assert job["verdict"]["kind"] in ("orphan", "abandoned")
    assert job["verdict"]["suggests"] == "requeue"
    done = told(machine.post("actions", order("requeue", jobs=[{"id": "1", "seen": job["seen"]}])))
    assert outcomes(done) == {"1": "done"}
    assert desk.client.lrange(f"{BASE}:wait", 0, -1) == [b"1"]


def test_a_locked_job_is_refused_whatever_is_said(desk: Desk, machine: Machine) -> None:
    orphaned(desk)
    desk.client.set(f"{BASE}:1:lock", "worker:7", px=30_000)
    for options in ({}, {"force": True}):
        done = told(machine.post("actions", order("requeue", "1", options=options)))
        assert outcomes(done) == {"1": "refused"}
        assert "lock" in done["results"][0]["why"]
    assert desk.client.lrange(f"{BASE}:active", 0, -1) == [b"1"]


@pytest.mark.parametrize(
    "moved",
    [{"processed_at": 5}, {"starts": 9}, {"state": "failed"}, {"token": "other:1", "processed_at": 1}],
)
def test_what_moved_since_it_was_seen_is_refused(desk: Desk, machine: Machine, moved: dict[str, Any]) -> None:
    orphaned(desk)
    seen = told(machine.get(f"queues/{QUEUE}/jobs/1"))["seen"] | moved
    assert outcomes(told(machine.post("actions", order("requeue", jobs=[{"id": "1", "seen": seen}])))) == {
        "1": "refused"
    }
    assert desk.client.lrange(f"{BASE}:active", 0, -1) == [b"1"]


def test_a_job_that_ended_meanwhile_is_no_fault(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    seen = told(machine.get(f"queues/{QUEUE}/jobs/1"))["seen"]
    desk.client.delete(f"{BASE}:1")
    desk.client.zrem(f"{BASE}:failed", "1")
    desk.forget()
    done = told(machine.post("actions", order("retry", jobs=[{"id": "1", "seen": seen}])))
    assert outcomes(done) == {"1": "missing"}


def test_a_job_that_completed_meanwhile_runs_again_only_when_that_is_said(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    desk.client.zrem(f"{BASE}:failed", "1")
    desk.client.zadd(f"{BASE}:completed", {"1": now_ms()})
    done = told(machine.post("actions", order("retry", "1")))
    assert outcomes(done) == {"1": "refused"}
    assert "It has completed" in done["results"][0]["why"]
    assert desk.client.llen(f"{BASE}:wait") == 0
    assert outcomes(told(machine.post("actions", order("retry", "1", options={"rerun_completed": True})))) == {
        "1": "done"
    }


def test_a_dry_run_judges_and_changes_nothing(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    before = desk.client.hgetall(f"{BASE}:1")
    done = told(machine.post("actions", order("retry", "1", "nope", dry_run=True)))
    assert outcomes(done) == {"1": "done", "nope": "missing"}
    assert done["dry_run"] is True
    assert desk.client.hgetall(f"{BASE}:1") == before
    assert desk.client.zcard(f"{BASE}:failed") == 1
    assert not AuditEntry.objects.exists()


def test_a_dry_run_needs_no_reason_and_an_act_does(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    told(machine.post("actions", order("retry", "1", dry_run=True, reason="")))
    for reason in ("", "   ", "x" * 600):
        refused(machine.post("actions", order("retry", "1", reason=reason)), 422, "bad_order")
    assert desk.client.zcard(f"{BASE}:failed") == 1


def test_a_queue_is_paused_and_resumed(desk: Desk, machine: Machine) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    (result,) = told(machine.post("actions", order("pause")))["results"]
    assert (result["job"], result["outcome"]) == ("", "done")
    assert desk.client.hexists(f"{BASE}:meta", "paused")
    told(machine.post("actions", order("resume")))
    assert not desk.client.hexists(f"{BASE}:meta", "paused")


def test_the_scope_act_alone_is_for_single_jobs(desk: Desk) -> None:
    failed(desk, "1", "2")
    single = Machine(TokenScope.ACT)
    refused(single.post("actions", order("retry", "1", "2")), 403, "forbidden")
    refused(single.post("actions", order("pause")), 403, "forbidden")
    assert desk.client.zcard(f"{BASE}:failed") == 2
    told(single.post("actions", order("retry", "1")))


@pytest.mark.parametrize("act", ["retry", "pause"])
def test_what_a_library_cannot_do_is_refused_as_a_whole(desk: Desk, machine: Machine, act: str) -> None:
    failed(desk, "1")
    desk.client.hset(f"{BASE}:meta", "version", "bullmq-pro:7.1.0")
    pro = desk.look(BASE, flavour=LibraryVersion(QueueLibrary.PRO, 7, read_only="BullMQ Pro is not touched."))
    snapshot_store.publish(registry().state(), pro)
    fault = refused(machine.post("actions", order(act, *(["1"] if act == "retry" else []))), 409, "unsupported")
    assert "Pro" in fault["message"]


def test_a_queue_or_deployment_that_is_not_there_is_404(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    refused(machine.post("actions", order("retry", "1", queue="main/bull:none")), 404, "queue_missing")
    refused(machine.post("actions", order("retry", "1", queue="other/bull:mail")), 404, "deployment_missing")


@pytest.mark.parametrize(
    "changed",
    [
        {"act": "explode"},
        {"act": "restore"},
        {"queue": "bull:mail"},
        {"queue": "/"},
        {"queue": "x" * 7000},
        {"jobs": []},
        {"jobs": ["1"]},
        {"jobs": [{"id": "~zz"}]},
        {"jobs": [{"id": 1}]},
        {"jobs": [{"id": "1"}] * 1001},
        {"jobs": [{"id": "1", "seen": {"state": "somewhere"}}]},
        {"jobs": [{"id": "1", "seen": {"state": "failed", "token": "~zz"}}]},
        {"options": {"is_late": True}},
        {"options": {"forse": True}},
        {"options": {"message": "x" * 301}},
        {"options": {"force": 1}},
        {"surprise": 1},
        {"dry_run": "perhaps"},
    ],
    ids=lambda changed: json.dumps(changed)[:40],
)
def test_an_order_that_makes_no_sense_is_told_why(desk: Desk, machine: Machine, changed: dict[str, Any]) -> None:
    failed(desk, "1")
    answer = machine.post("actions", order("retry", "1") | changed)
    assert answer.status_code == 422, answer.content
    assert json.loads(answer.content)["error"]["message"]
    assert desk.client.zcard(f"{BASE}:failed") == 1


def test_a_refusal_does_not_repeat_what_was_sent(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    answer = machine.post("actions", order("retry", "1") | {"dry_run": "hunter2-in-the-wrong-field"})
    assert answer.status_code == 422
    assert "hunter2" not in answer.content.decode()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"act":' * 5000, b"9" * 10_000, b"NaN"],
    ids=lambda body: repr(body[:10]),
)
def test_a_body_that_is_no_order_is_never_a_fault_of_ours(desk: Desk, machine: Machine, body: bytes) -> None:
    answer = machine.post("actions", body)
    assert answer.status_code in (400, 422), answer.content
    assert set(json.loads(answer.content)) == {"error"}


@pytest.mark.parametrize("id", ["<b>", "a/b?c#d", "\udcff\udcfe", "new\nline", "\u202ex", "~", "…" * 50])
def test_a_job_of_any_name_can_be_acted_on(desk: Desk, machine: Machine, id: str) -> None:
    bullmq(desk.client, BASE)
    key, now = encode_name(f"{BASE}:{id}"), now_ms()
    desk.client.hset(key, mapping={"name": "x", "data": "{}", "timestamp": now, "finishedOn": now, "atm": 1})
    desk.client.zadd(f"{BASE}:failed", {encode_name(id): now})
    desk.look(BASE)
    done = told(machine.post("actions", order("retry", slug(id))))
    assert outcomes(done) == {slug(id): "done"}
    assert desk.client.lrange(f"{BASE}:wait", 0, -1) == [encode_name(id)]


def test_a_job_named_twice_is_meant_once(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    assert len(told(machine.post("actions", order("retry", "1", "1")))["results"]) == 1


def test_without_an_audit_nothing_is_done(desk: Desk, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    failed(desk, "1")

    def full(*_: object) -> None:
        raise OperationalError("disk is full at /srv/secret")

    monkeypatch.setattr(audit_log, "_append", full)
    answer = machine.post("actions", order("retry", "1"))
    refused(answer, 503, "not_recorded")
    assert answer["Retry-After"]
    assert "/srv/secret" not in answer.content.decode()
    assert desk.client.zcard(f"{BASE}:failed") == 1


def test_a_silent_store_is_503_and_says_to_look_first(desk: Desk, machine: Machine) -> None:
    failed(desk, "1")
    desk.store.pause()
    try:
        fault = refused(machine.post("actions", order("retry", "1")), 503, "store_timed_out")
    finally:
        desk.store.resume()
    assert "Check before you repeat it" in fault["message"]


# -- the catalog


def test_the_catalog_has_every_act_with_what_it_takes(desk: Desk, machine: Machine) -> None:
    actions = {entry["act"]: entry for entry in told(machine.get("actions"))["actions"]}
    assert set(actions) == {act.value for act in Action}
    assert actions["retry"]["scopes"] == ["act"]
    assert actions["pause"]["scopes"] == ["act", "bulk"]
    assert all(entry["refused"] is None for entry in actions.values())


def test_the_catalog_says_what_cannot_be_done_to_a_queue(desk: Desk, machine: Machine) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE, flavour=LibraryVersion(QueueLibrary.PRO, 7, read_only="BullMQ Pro is not touched."))
    actions = told(machine.get("actions", queue=QUEUE))["actions"]
    assert {entry["refused"] for entry in actions} == {"BullMQ Pro is not touched."}
    refused(machine.get("actions", queue="main/bull:none"), 404, "queue_missing")
    refused(machine.get("actions", queue="x"), 422, "invalid")
