"""/tuning: what is pasted is judged, what runs is shown, and nothing of it is kept or repeated."""

from __future__ import annotations

import logging

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import DatabaseError
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.tuning import views as view
from dashboard.tuning.forms import ALL_LIMIT, FILE_LIMIT
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.models import AuditEntry, Incident
from recovery.reads.stuck import incidents
from tests.support.people import browser, person, text
from tests.support.stuck.watching import now_ms
from tests.support.tuning import COMPOSE, KUBERNETES
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)
PAGE = "/tuning"
N8N = LibraryVersion(QueueLibrary.BULL, 4)


@pytest.fixture(autouse=True)
def fresh(desk: Desk) -> None:
    view._shown.forget()


def post(client: Client, status: int = 200, **fields: object) -> str:
    answer = client.post(PAGE, fields)
    assert answer.status_code == status, answer.content[:400]
    return answer.content.decode()


@pytest.mark.parametrize("role", UserRole)
def test_everybody_who_may_look_may_ask(role: UserRole) -> None:
    page = post(browser(person(role)), text=KUBERNETES)
    assert "lock 60 + check 30 = 90 s" in page
    assert "preStop 0 + shutdown 30 = 30 s, grace period 30 s" in page
    assert "+      terminationGracePeriodSeconds: 65" in page
    assert AuditEntry.objects.count() == 0, "nothing was changed"


def test_the_most_severe_stands_first(viewer: Client) -> None:
    page = post(viewer, text=KUBERNETES)
    order = [page.index(f'data-severity="{severity}"') for severity in ("high", "medium", "low")]
    assert order == sorted(order)


def test_the_patch_says_how_to_apply_it(viewer: Client) -> None:
    assert "<code>patch -p1</code> or <code>git apply</code>." in post(viewer, text=KUBERNETES)
    page = post(viewer, text="QUEUE_WORKER_LOCK_DURATION=60000\nDB_POSTGRESDB_PASSWORD=hunter2\n")
    assert "<code>git apply --unidiff-zero</code>" in page
    assert "hunter2" not in page


def test_of_n8n_2_the_picture_says_that_a_lost_job_is_failed(viewer: Client) -> None:
    page = post(viewer, text=KUBERNETES.replace("1.123.5", "2.41.1"))
    assert page.count("failed, not run again, after about") == 4, "title and words of two lanes"
    assert "requeued after" not in page


def test_now_and_proposed_are_foretold_and_drawn(viewer: Client) -> None:
    page = post(viewer, text=KUBERNETES)
    assert "requeued after about 90 s; typically 70 s, at worst 120 s" in page
    assert "requeued after about 45 s; typically 35 s, at worst 60 s" in page
    assert "SIGKILL after 30 s, but jobs may run until 30 s: jobs may be killed" in page
    assert "done after 50 s, SIGKILL after 65 s: 15 s margin" in page
    assert page.count('<svg role="img"') == 4
    assert "style=" not in page


def test_several_files_are_one_order(viewer: Client) -> None:
    files = [SimpleUploadedFile("compose.yaml", COMPOSE.encode()), SimpleUploadedFile(".env", b"A=1\n")]
    page = post(viewer, files=files)
    assert "Patch of compose.yaml" in page
    assert "QUEUE_WORKER_MAX_STALLED_COUNT does nothing in n8n 2.4.0" in page


def test_no_secret_is_repeated_and_nothing_is_logged(viewer: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        page = post(viewer, text=COMPOSE) + post(viewer, text=KUBERNETES) + post(viewer, 400, text=f"{COMPOSE}\n: [")
    assert "hunter" not in page
    assert "hunter" not in caplog.text


def test_a_fault_of_ours_tells_nobody_what_was_pasted(monkeypatch: pytest.MonkeyPatch, viewer: Client) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(view, "parse_files", broken)
    answer = viewer.post(PAGE, {"text": COMPOSE})
    assert answer.status_code == 500
    assert b"hunter" not in answer.content


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("a: 1\nb: [1,\n", "pasted, line 3: this is not YAML"),
        ("A=1\nwhat?\n", "pasted, line 2: neither a comment nor NAME=value"),
        ("x: !!python/object:a.b {}\n", "pasted, line 1: a tag that constructs an object"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(written: str, said: str, viewer: Client) -> None:
    assert said in post(viewer, 400, text=written)


def test_what_is_too_large_is_said_on_the_page(viewer: Client) -> None:
    page = post(viewer, 413, text="#" * (FILE_LIMIT + 1))
    assert "too large: a file may have 1,024 KB" in page
    assert "Analyze configuration" in page
    half = [SimpleUploadedFile(f"{n}.env", b"#" * (ALL_LIMIT // 2)) for n in range(3)]
    assert "all of them together 1,536 KB" in post(viewer, 413, files=half)


def test_a_wrong_small_field_is_said(viewer: Client) -> None:
    assert "n8n version: write it as 1.123.5" in post(viewer, 400, version="the new one")
    assert "lockDuration: write it as 30s" in post(viewer, 400, library="bullmq", lock="long")


def test_a_library_alone_is_judged_by_its_options(viewer: Client) -> None:
    page = post(viewer, library="bullmq", stalled="1m", shutdown="10s")
    assert "lock 30 + check 60" not in page, "the first check only marks it"
    assert "two checks, the first only marks it: 2 × 60 = 120 s" in page
    assert "stalledInterval: 15000," in page
    assert '<option value="bullmq" selected>' in page


def test_the_version_that_a_person_says_counts(viewer: Client) -> None:
    page = post(viewer, text="QUEUE_WORKER_MAX_STALLED_COUNT=2\n", version="1.100.0")
    assert "does nothing" not in page
    assert "n8n 1.100.0" in page


def test_names_that_mean_harm_are_only_text(viewer: Client) -> None:
    nasty = COMPOSE.replace("  worker:\n", '  "<script>alert(1)</script>":\n')
    assert "<script>alert" not in post(viewer, text=nasty)


def test_the_running_queues_are_shown_at_once(desk: Desk, viewer: Client) -> None:
    desk.client.lpush("bull:jobs:active", "1", "2")
    for job, ttl in (("1", 60_000), ("2", 50_500)):
        desk.client.hset(f"bull:jobs:{job}", mapping={"name": "job", "data": "{}", "opts": "{}", "timestamp": "1"})
        desk.client.set(f"bull:jobs:{job}:lock", "w", px=ttl)
    desk.client.set("bull:jobs:stalled-check", "1", px=30_000)
    desk.look("bull:jobs", flavour=N8N)
    page = text(viewer, PAGE)
    assert "≥ 60 s" in page
    assert "about 90 s" in page
    assert "typically 70 s, at worst 120 s" in page
    page = post(viewer, text="QUEUE_WORKER_LOCK_DURATION=30000\n", version="1.123.5")
    assert "bull:jobs runs with a lock of 60 s: the files do not match the running workers." in page


def test_beside_it_stands_what_was_measured(desk: Desk, viewer: Client) -> None:
    desk.client.rpush("bull:jobs:wait", "1")
    desk.look("bull:jobs", flavour=N8N)
    now, slug = now_ms(), desk.snapshot.queues[0].ref.slug if desk.snapshot else ""
    for took in (61_000, 63_000, 114_000):
        opened = {"opened_at": now - 500_000, "proven_at": now - 490_000, "closed_at": now - 500_000 + took}
        Incident.objects.create(deployment="main", base=slug, job=str(took), kind="orphan", **opened)
    page = text(viewer, PAGE)
    assert "median 1 min 3 s" in page
    assert "worst 1 min 54 s, of 3" in page
    assert "Measured, 7 days: median 1 min 3 s, worst 1 min 54 s, of 3." in post(viewer, text=KUBERNETES)


def test_without_a_database_nothing_is_measured_and_all_else_is_said(
    desk: Desk, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object, **__: object) -> None:
        raise DatabaseError

    desk.client.rpush("bull:jobs:wait", "1")
    desk.look("bull:jobs", flavour=N8N)
    monkeypatch.setattr(incidents, "recovery_times", silent)
    page = post(viewer, text=KUBERNETES)
    assert "unknown, because the database does not answer" in page
    assert "about 90 s" in page


def test_unknown_is_not_shown_as_zero(desk: Desk, viewer: Client) -> None:
    assert "No queues checked yet" in text(viewer, PAGE)
    desk.client.rpush("bull:jobs:wait", "1")
    desk.look("bull:jobs", flavour=N8N)
    view._shown.forget()
    page = text(viewer, PAGE)
    assert "not enough data" in page
    assert "0 s" not in page[page.index("running-title") :]
