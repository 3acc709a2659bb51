"""One job's page: its life, its payloads, and who may read what of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.db import DatabaseError
from django.test import Client

from recovery import config
from recovery.backends.base import TEXT_LIMIT
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import QueueRef
from recovery.models import AuditEntry, AuditJob, Incident
from tests.support.people import browser, text
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db
BASE = "bull:mail"
JOB = "/queues/main/bull:mail/jobs/7"
SECRET = "hunter2-never-seen"
TABS = ("error", "data", "options", "result", "logs", "raw")


def failed(desk: Desk, id: str = "7", **fields: str | int) -> None:
    bullmq(desk.client, BASE)
    now = now_ms()
    add(desk.client, BASE, id, processedOn=now - 2000, finishedOn=now, attempts=1, **fields)
    desk.client.lrem(f"{BASE}:wait", 1, id)
    desk.client.zadd(f"{BASE}:failed", {id: now})
    desk.look(BASE)


def test_a_failed_job_opens_on_its_error(desk: Desk, viewer: Client) -> None:
    failed(
        desk, failedReason="Error: <no>", stacktrace=json.dumps(["Error: <no>\n  at first", "Error: <no>\n  at second"])
    )
    page = text(viewer, JOB)
    assert 'id="tab-error" href="?tab=error" aria-current="page"' in page
    assert "Error: &lt;no&gt;" in page
    assert page.index("at second") < page.index("at first")
    for words in ("Added", "Started", "Failed"):
        assert f"<b>{words}" in page


def revealed(client: Client, tab: str, more: str = "") -> str:
    """The tab as it is, once the audit has it."""
    answer = client.post(f"{JOB}/reveal?tab={tab}{more}")
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def test_data_is_a_tree(desk: Desk, operator: Client) -> None:
    failed(desk, data='{"to":"ada","deep":{"a":{"b":{"c":1}}}}')
    page = text(operator, f"{JOB}?tab=data")
    assert "&lt;text of 3 characters&gt;" in page
    assert "ada" not in page
    page = revealed(operator, "data")
    assert "ada" in page
    assert page.count("<details open><summary>") == 3
    assert page.count("<details><summary><b>b</b>") == 1


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
        defa=f"child 9 failed with token={SECRET}",
        password=SECRET,
    )
    desk.client.rpush(f"{BASE}:7:logs", f"Authorization: Bearer {SECRET}")
    desk.forget()


@pytest.mark.parametrize("tab", TABS)
def test_a_viewer_reads_no_secret_anywhere(desk: Desk, viewer: Client, tab: str) -> None:
    planted(desk)
    for address in (f"{JOB}?tab={tab}", f"{JOB}?tab={tab}&whole", f"{JOB}/tab?tab={tab}", f"{JOB}/life"):
        assert SECRET not in text(viewer, address)
    assert "redacted for your role" in text(viewer, f"{JOB}?tab={tab}")


@pytest.mark.parametrize("tab", TABS)
def test_an_operator_reveals_what_there_is_and_the_audit_has_each_time(
    desk: Desk, operator: Client, viewer: Client, tab: str
) -> None:
    planted(desk)
    for address in (f"{JOB}?tab={tab}", f"{JOB}?tab={tab}&whole", f"{JOB}/tab?tab={tab}", f"{JOB}/life"):
        assert SECRET not in text(operator, address)
    assert AuditEntry.objects.count() == 0, "a page view is no reveal"
    assert SECRET in revealed(operator, tab)
    (entry,) = AuditEntry.objects.all()
    assert (entry.act, entry.actor, entry.phase) == ("reveal", "some-operator", "note")
    assert json.loads(entry.body) == {"jobs": [{"job": "7"}], "options": {"parts": tab}}
    assert [(one.entry_id, one.job) for one in AuditJob.objects.all()] == [(entry.pk, job_key("7"))]
    assert SECRET not in text(operator, f"{JOB}?tab={tab}"), "the next view hides it again"
    page = text(viewer, f"{JOB}?tab={tab}")
    assert "Reveal by some-operator" in page
    assert f"parts: {tab}" in text(viewer, f"/audit/{entry.pk}")


def test_a_fragment_is_revealed_in_its_place(desk: Desk, operator: Client) -> None:
    planted(desk)
    answer = operator.post(f"{JOB}/reveal?tab=data", headers={"HX-Request": "true"})
    page = answer.content.decode()
    assert page.lstrip().startswith('<section id="tab"')
    assert SECRET in page
    assert answer["Cache-Control"] == "no-store"


def test_only_operators_reveal_and_only_by_a_post(desk: Desk, operator: Client, viewer: Client) -> None:
    planted(desk)
    assert viewer.post(f"{JOB}/reveal?tab=data").status_code == 403
    assert operator.get(f"{JOB}/reveal?tab=data").status_code == 405
    assert operator.post(f"{JOB}/reveal?tab=family").status_code == 404
    assert operator.post(f"{JOB}/reveal").status_code == 404
    assert AuditEntry.objects.count() == 0
    assert "/reveal" not in text(viewer, f"{JOB}?tab=data")


def test_nothing_is_shown_when_the_audit_cannot_be_written(
    desk: Desk, operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(desk)

    def broken(*_: object, **__: object) -> None:
        raise DatabaseError("disk full")

    monkeypatch.setattr(AuditEntry, "save", broken)
    answer = operator.post(f"{JOB}/reveal?tab=data")
    assert answer.status_code >= 500
    assert SECRET not in answer.content.decode()


def test_one_part_reveals_no_other(desk: Desk, operator: Client) -> None:
    failed(desk, data='{"a":"Zq-data"}', returnvalue='{"b":"Zq-result"}', progress='{"c":"Zq-progress"}')
    page = revealed(operator, "data")
    assert "Zq-data" in page
    assert "Zq-result" not in page
    assert "Zq-progress" not in page


def test_the_configuration_shows_values_by_path(desk: Desk, viewer: Client, tmp_path: Path) -> None:
    failed(desk, data='{"order":{"id":"Zq-17","mail":"Zq-mail"}}')
    with (tmp_path / "unstall.toml").open("a") as file:
        file.write('\n[[redaction.show]]\nqueues = ["bull:mail"]\npaths = ["data.order.id"]\n')
    config.current.cache_clear()
    page = text(viewer, f"{JOB}?tab=data")
    assert "Zq-17" in page
    assert "Zq-mail" not in page


@pytest.mark.parametrize("tab", ["failed", "history"])
def test_a_viewer_reads_no_secret_in_a_list(desk: Desk, viewer: Client, tab: str) -> None:
    planted(desk)
    page = text(viewer, f"/queues/main/bull:mail/?tab={tab}")
    assert "token=[redacted]" in page
    assert SECRET not in page


def test_a_large_payload_is_cut_until_all_of_it_is_asked_for(desk: Desk, operator: Client) -> None:
    failed(desk, data=json.dumps({"rows": ["x" * 100] * 2000, "end": "the very end"}))
    assert "Load all" in text(operator, f"{JOB}?tab=data")
    cut, whole = revealed(operator, "data"), revealed(operator, "data", "&whole")
    assert "the very end" not in cut
    assert "Load all" in cut
    assert len(cut) < 2 * TEXT_LIMIT
    assert "the very end" in whole


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00", b'{"a":', b"", b"[" * 70_000, b'{"a":"\\ud800"}', b"<script>alert(1)</script>"]
)
def test_any_payload_is_shown_as_text(desk: Desk, operator: Client, data: bytes) -> None:
    failed(desk)
    desk.client.hset(f"{BASE}:7", "data", data)  # type: ignore[arg-type] # any bytes may be there
    desk.forget()
    for tab in ("data", "raw"):
        assert "<script>alert" not in text(operator, f"{JOB}?tab={tab}")
        assert "<script>alert" not in revealed(operator, tab)


def test_logs_come_from_their_end(desk: Desk, operator: Client) -> None:
    failed(desk)
    desk.client.rpush(f"{BASE}:7:logs", *(f"line-{index:03d}" for index in range(250)))
    desk.forget()
    page = text(operator, f"{JOB}?tab=logs")
    assert "line-249" in page
    assert "line-049" not in page
    assert "line-049" in text(operator, f"{JOB}?tab=logs&from=0")


def test_a_family_is_linked_across_queues(desk: Desk, operator: Client) -> None:
    bullmq(desk.client, "bull:reports")
    add(desk.client, "bull:reports", "parent")
    desk.client.sadd("bull:reports:parent:dependencies", f"{BASE}:7")
    failed(desk, parentKey="bull:reports:parent", parent=json.dumps({"id": "parent", "queueKey": "bull:reports"}))
    assert 'href="/queues/main/bull:reports/jobs/parent"' in text(operator, f"{JOB}?tab=family")
    assert f'href="{JOB}"' in text(operator, "/queues/main/bull:reports/jobs/parent?tab=family")


def test_a_living_job_refreshes_and_a_finished_one_is_left_alone(desk: Desk, viewer: Client) -> None:
    failed(desk)
    add(desk.client, BASE, "8")
    assert "unstall:refresh" not in text(viewer, f"{JOB}/life")
    assert "unstall:refresh" in text(viewer, "/queues/main/bull:mail/jobs/8/life")


def test_a_job_that_is_gone_is_not_found(desk: Desk, viewer: Client) -> None:
    failed(desk)
    desk.client.delete(f"{BASE}:7")
    desk.client.zrem(f"{BASE}:failed", "7")
    desk.forget()
    for address in (JOB, f"{JOB}/life", f"{JOB}/tab"):
        text(viewer, address, status=404)


def test_a_stranger_gets_nothing(desk: Desk) -> None:
    failed(desk)
    for address in (JOB, f"{JOB}/life", f"{JOB}/tab"):
        assert browser().get(address).status_code == 302


def test_what_happened_to_an_older_job_of_its_id_is_not_its_own(desk: Desk, viewer: Client) -> None:
    """After a flush ids start anew."""
    now = now_ms()
    bullmq(desk.client, BASE)
    add(desk.client, BASE, "9", timestamp=now - 60_000)
    desk.look(BASE)
    facts = {"deployment": "main", "base": QueueRef("main", BASE).slug, "job": "9", "kind": "orphan"}
    for ago, word in ((3_600_000, "of the older one"), (30_000, "of its own")):
        opened = now - ago
        Incident.objects.create(**facts, evidence=word, opened_at=opened, closed_at=opened + 9_000)
    page = text(viewer, f"/queues/main/{BASE}/jobs/9")
    assert "of its own" in page
    assert "of the older one" not in page
