"""/queues and …/jobs of the API: the numbers of the pages, names of any bytes, payloads by scope."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dashboard.accounts.token_scopes import TokenScope
from dashboard.live.cached_state import SnapshotHealth
from recovery.domain.identifiers import encode_name, slug
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.models import AuditEntry
from tests.support.machines import Machine, refused, told
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db
BASE = "bull:mail"
SECRET = "hunter2-never-seen"
HOSTILE = [
    "bull:<script>alert(1)</script>",
    "bull:a/b?c=d#e",
    "bull:..",
    "bull:ünïcode \U0001f600",
    "bull:\udcff\udcfe",
    "bull:new\nline\x00\x1b[31m",
    "bull:\u202eabc",
    "bull:%2e%2e~",
]


@pytest.fixture
def reader() -> Machine:
    return Machine(TokenScope.READ)


def failed(desk: Desk, id: str = "7", base: str = BASE, **fields: str | int) -> None:
    bullmq(desk.client, base)
    now = now_ms()
    add(desk.client, base, id, processedOn=now - 2000, finishedOn=now, attempts=1, **fields)
    desk.client.lrem(f"{base}:wait", 1, id)
    desk.client.zadd(f"{base}:failed", {id: now})
    desk.look(base)


# -- queues


def test_queues_have_the_numbers_of_the_snapshot(desk: Desk, reader: Machine) -> None:
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "1", "2")
    snapshot = desk.look(BASE)
    page = told(reader.get("queues"))
    assert (page["matched"], page["total"], page["next"], page["stale"]) == (1, 1, None, None)
    assert page["taken_at"] == snapshot.taken_at
    (queue,) = page["queues"]
    assert (queue["deployment"], queue["id"], queue["label"]) == ("main", BASE, BASE)
    assert (queue["counts"]["waiting"], queue["ready"], queue["library"]) == (2, 2, "bullmq")


def test_what_is_not_known_is_null_and_not_0(desk: Desk, reader: Machine) -> None:
    desk.client.set("bull:odd:meta", "no hash")
    desk.client.set("bull:odd:wait", "no list")
    desk.look("bull:odd")
    (queue,) = told(reader.get("queues"))["queues"]
    assert queue["counts"]["waiting"] is None
    assert queue["ready"] is None
    assert queue["error"]


def test_old_numbers_say_so(desk: Desk, reader: Machine) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    desk.health = SnapshotHealth(snapshot_age_ms=34_000, scheduler_alive=False, stale=True)
    assert told(reader.get("queues"))["stale"]
    assert told(reader.get(f"queues/main/{BASE}"))["stale"]


def test_queues_are_filtered_sorted_and_paged(desk: Desk, reader: Machine) -> None:
    bases = [f"bull:q{index:03d}" for index in range(130)]
    for base in bases:
        bullmq(desk.client, base)
    add(desk.client, "bull:q100", "1")
    desk.look(*bases)
    assert [queue["id"] for queue in told(reader.get("queues", q="state:waiting"))["queues"]] == ["bull:q100"]
    first = told(reader.get("queues", sort="name"))
    assert [queue["id"] for queue in first["queues"]] == bases[:100]
    second = told(reader.get("queues", sort="name", cursor=first["next"]))
    assert [queue["id"] for queue in second["queues"]] == bases[100:]
    assert second["next"] is None
    assert told(reader.get("queues", sort="-name"))["queues"][0]["id"] == bases[-1]
    assert told(reader.get("queues", deployment="other"))["matched"] == 0


@pytest.mark.parametrize(
    "query",
    [
        {"sort": "colour"},
        {"cursor": "x"},
        {"cursor": "-1"},
        {"cursor": "9" * 30},
        {"q": "x" * 201},
        {"q": "state:nonsense"},
        {"deployment": "x" * 65},
    ],
)
def test_a_query_that_cannot_be_is_told_what_is_wrong(desk: Desk, reader: Machine, query: dict[str, str]) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    refused(reader.get("queues", **query), 422, "invalid")


def test_without_a_snapshot_nothing_is_made_up(desk: Desk, reader: Machine) -> None:
    answer = reader.get("queues")
    refused(answer, 503, "no_snapshot")
    assert answer["Retry-After"]


def test_one_queue_says_what_its_library_can_do(desk: Desk, reader: Machine) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    queue = told(reader.get(f"queues/main/{BASE}"))
    assert queue["evidence"]
    assert "waiting-children" in queue["states"]
    assert queue["read_only"] is None


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("queues/main/bull:none", "queue_missing"),
        ("queues/other/bull:mail", "deployment_missing"),
        ("queues/main/~zz", "queue_missing"),
        ("queues/main/%00", "queue_missing"),
        ("queues/main/bull:none/jobs?state=active", "queue_missing"),
        (f"queues/main/{BASE}/jobs/none", "job_missing"),
        (f"queues/main/{BASE}/jobs/~zz", "job_missing"),
    ],
)
def test_what_is_not_there_is_404(desk: Desk, reader: Machine, path: str, code: str) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    refused(reader.get(path), 404, code)


@pytest.mark.parametrize("base", HOSTILE)
def test_any_name_leads_back_to_its_queue_and_job(desk: Desk, reader: Machine, base: str) -> None:
    id = base.removeprefix("bull:")
    key = encode_name(base)
    desk.client.hset(key + b":meta", mapping={"version": "bullmq:5.81.5", "opts.maxLenEvents": "10000"})
    desk.client.hset(
        key + b":" + encode_name(id),
        mapping={"name": encode_name(id), "data": encode_name(id), "timestamp": 1, "delay": 0},
    )
    desk.client.lpush(key + b":wait", encode_name(id))
    desk.look(base)
    (queue,) = told(reader.get("queues"))["queues"]
    assert queue["id"] == slug(base)
    (job,) = told(reader.get(f"queues/main/{queue['id']}/jobs", state="waiting"))["jobs"]
    assert job["id"] == slug(id)
    found = told(reader.get(f"queues/main/{queue['id']}/jobs/{job['id']}"))
    assert found["state"] == "waiting"
    assert "\x1b" not in found["label"]
    assert "\u202e" not in found["label"]


# -- jobs


def test_jobs_come_in_windows(desk: Desk, reader: Machine) -> None:
    bullmq(desk.client, BASE)
    ids = [str(index) for index in range(1, 8)]
    add(desk.client, BASE, *ids)
    desk.look(BASE)
    path, cursor, found = f"queues/main/{BASE}/jobs", "", []
    for _ in range(4):
        page = told(reader.get(path, state="waiting", size=3, cursor=cursor))
        found += [job["id"] for job in page["jobs"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert found == ids
    assert page["total"] == 7


def test_a_row_carries_what_was_seen_of_it(desk: Desk, reader: Machine) -> None:
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "1", processedOn=5, ats=2, atm=1)
    desk.client.lmove(f"{BASE}:wait", f"{BASE}:active", "RIGHT", "LEFT")
    desk.client.set(f"{BASE}:1:lock", "worker 1:7", px=30_000)
    desk.look(BASE)
    (job,) = told(reader.get(f"queues/main/{BASE}/jobs", state="active"))["jobs"]
    assert job["has_lock"] is True
    assert 0 < job["lock_ttl"] <= 30_000
    expected = {"state": "active", "token": "worker~201:7", "processed_at": 5, "attempts": 1, "starts": 2, "stalls": 0}
    assert job["seen"] == expected


@pytest.mark.parametrize(
    "query",
    [{}, {"state": "held"}, {"state": "active", "size": 0}, {"state": "active", "size": 101}],
)
def test_a_window_that_cannot_be_is_told_what_is_wrong(desk: Desk, reader: Machine, query: dict[str, Any]) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    refused(reader.get(f"queues/main/{BASE}/jobs", **query), 422, "invalid")


def test_a_state_that_the_library_does_not_have_is_a_conflict(desk: Desk, reader: Machine) -> None:
    """The document allows it, because other libraries have it."""
    bullmq(desk.client, BASE)
    desk.look(BASE, flavour=LibraryVersion(QueueLibrary.BULL, 4))
    refused(reader.get(f"queues/main/{BASE}/jobs", state="prioritized"), 409, "unsupported")


def test_a_cursor_that_nobody_gave_out_is_no_fault(desk: Desk, reader: Machine) -> None:
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "1")
    desk.look(BASE)
    for cursor in ("x", "~~~", "\x00", "9" * 60):
        assert reader.get(f"queues/main/{BASE}/jobs", state="waiting", cursor=cursor).status_code in (200, 422)


def planted(desk: Desk) -> None:
    leaky = json.dumps({"password": SECRET, "note": f"Bearer {SECRET}"})
    failed(
        desk,
        data=leaky,
        opts=json.dumps({"attempts": 3, "headers": {"Authorization": SECRET}}),
        returnvalue=leaky,
        failedReason=f"401 with token={SECRET}",
        stacktrace=json.dumps([f"Error: api_key={SECRET}\n at x"]),
        progress=leaky,
    )


@pytest.mark.parametrize("path", [f"queues/main/{BASE}/jobs?state=failed", f"queues/main/{BASE}/jobs/7?whole=true"])
def test_secrets_are_read_by_their_scope_only(desk: Desk, reader: Machine, path: str) -> None:
    planted(desk)
    answer = reader.get(path)
    told(answer)
    assert SECRET not in answer.content.decode()
    trusted = Machine(TokenScope.READ, TokenScope.PAYLOADS, name="trusted")
    assert SECRET not in trusted.get(path).content.decode(), "it has not asked"
    assert AuditEntry.objects.filter(act="reveal").count() == 0


def test_a_payload_is_revealed_to_its_scope_and_the_audit_has_it(desk: Desk, reader: Machine) -> None:
    planted(desk)
    path, trusted = f"queues/main/{BASE}/jobs/7", Machine(TokenScope.READ, TokenScope.PAYLOADS, name="trusted")
    refused(reader.get(path, reveal="data"), 403, "scope_missing")
    assert AuditEntry.objects.filter(act="reveal").count() == 0
    job = told(trusted.get(path, reveal=["error", "data"]))
    assert SECRET in job["data"]["text"]
    assert SECRET in job["failure"]
    assert SECRET not in json.dumps([job["options"], job["result"], job["progress"]])
    assert (job["revealed"], job["is_redacted"]) == (["data", "error"], True)
    (entry,) = AuditEntry.objects.filter(act="reveal")
    assert (entry.actor_kind, entry.actor) == ("token", "trusted")
    assert json.loads(entry.body) == {"jobs": [{"job": "7"}], "options": {"parts": "data, error"}}
    whole = told(trusted.get(path, reveal=["data", "error", "options", "result", "progress"]))
    assert whole["is_redacted"] is False
    refused(trusted.get(path, reveal="raw"), 422, "invalid")


def test_the_scope_for_payloads_alone_reads_nothing(desk: Desk) -> None:
    planted(desk)
    refused(Machine(TokenScope.PAYLOADS).get(f"queues/main/{BASE}/jobs/7"), 403, "scope_missing")


def test_a_job_says_why_it_failed_newest_first(desk: Desk, reader: Machine) -> None:
    failed(desk, failedReason="no route", stacktrace=json.dumps(["first", "second"]), data='{"to":"ada"}')
    job = told(reader.get(f"queues/main/{BASE}/jobs/7"))
    assert (job["state"], job["failure"], job["stack"]) == ("failed", "no route", ["second", "first"])
    assert json.loads(job["data"]["text"]) == {"to": "<text of 3 characters>"}
    assert job["is_redacted"] is True


def test_a_large_payload_is_cut_until_all_of_it_is_asked_for(desk: Desk, reader: Machine) -> None:
    failed(desk, data=json.dumps({"rows": ["x" * 100] * 2000, "end": "the very end"}))
    path, trusted = f"queues/main/{BASE}/jobs/7", Machine(TokenScope.READ, TokenScope.PAYLOADS, name="trusted")
    assert told(reader.get(path))["data"]["is_cut"] is True
    assert "the very end" not in told(reader.get(path, whole="true"))["data"]["text"]
    whole = told(trusted.get(path, whole="true", reveal="data"))["data"]
    assert whole["is_cut"] is False
    assert "the very end" in whole["text"]


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00", b'{"a":', b"", b"[" * 70_000, b'{"a":"\\ud800"}', b'"\\ud800"', b'["\\ud800"]']
)
def test_any_payload_is_a_text(desk: Desk, data: bytes) -> None:
    failed(desk)
    desk.client.hset(f"{BASE}:7", mapping={"data": data, "failedReason": data, "name": data, "stacktrace": data})
    desk.forget()
    everything = ["data", "options", "result", "progress", "error"]
    for scopes, query in (((TokenScope.READ,), {}), ((TokenScope.READ, TokenScope.PAYLOADS), {"reveal": everything})):
        job = told(Machine(*scopes).get(f"queues/main/{BASE}/jobs/7", **query))
        json.dumps(job, ensure_ascii=False).encode()


def test_a_job_that_is_gone_meanwhile_is_404_and_no_fault(desk: Desk, reader: Machine) -> None:
    failed(desk)
    desk.client.delete(f"{BASE}:7")
    desk.client.zrem(f"{BASE}:failed", "7")
    desk.forget()
    refused(reader.get(f"queues/main/{BASE}/jobs/7"), 404, "job_missing")


def test_a_silent_store_is_503_with_a_time_to_ask_again(desk: Desk, reader: Machine) -> None:
    failed(desk)
    desk.store.pause()
    try:
        answer = reader.get(f"queues/main/{BASE}/jobs", state="failed")
        fault = refused(answer, 503, "store_timed_out")
        assert fault["advice"]
        assert answer["Retry-After"]
        assert told(reader.get("queues"))["matched"] == 1
    finally:
        desk.store.resume()


@pytest.mark.parametrize("scope", [scope for scope in TokenScope if scope is not TokenScope.READ])
@pytest.mark.parametrize("path", ["queues", f"queues/main/{BASE}", f"queues/main/{BASE}/jobs?state=active"])
def test_no_other_scope_reads(desk: Desk, path: str, scope: TokenScope) -> None:
    fault = refused(Machine(scope).get(path), 403, "scope_missing")
    assert "scope read" in fault["message"]
    assert str(scope) in fault["advice"]
