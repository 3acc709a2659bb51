"""/scanners: how each scanner is, its runs and what they did, and the orders that people give."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.live import state_cache
from dashboard.scanners import views as scanners_views
from recovery.domain.audit.hash_chain import canonical, job_key
from recovery.domain.identifiers import slug
from recovery.domain.scanners.types import ScannerKind
from recovery.models import AuditEntry, PolicyLayer, ScanFind, ScannerPause, ScanRun
from recovery.reads.scanners import last_runs
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.stores import registry
from tests.support.people import browser, person, text
from tests.support.stuck.watching import bullmq, now_ms
from tests.web.acting import BASE, REASON
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)
NASTY = '"><img src=x onerror=alert(1)>'
SECRET = "hunter2-is-secret"
_HOUR = 3_600_000
ANNA = canonical({"kind": "person", "name": "anna", "may_act": True})


@pytest.fixture
def admin(desk: Desk) -> Client:
    for base in (BASE, "bull:orders"):
        bullmq(desk.client, base)
    desk.look(BASE, "bull:orders")
    scanners_views.forget()
    return browser(person(UserRole.ADMIN))


def ran(scan: ScannerKind, *, ago: int = 1000, succeeded: bool = True, **facts: Any) -> None:
    at = now_ms() - ago
    told: dict[str, Any] = {"succeeded_at": at if succeeded else None, "next_at": at + 900_000} | facts
    last_runs.write(registry.registry().state(), scan, LastScannerRun(at - 400, at, **told))
    scanners_views.forget()


def run(scan: ScannerKind = ScannerKind.STALE_CHECK, **facts: Any) -> ScanRun:
    at = now_ms()
    told: dict[str, Any] = {"status": "ended", "wanted_at": at - 5000, "started_at": at - 4000, "ended_at": at - 800}
    return ScanRun.objects.create(scanner=scan.value, **(told | facts))


def find(of: ScanRun, id: str = "7", **facts: Any) -> ScanFind:
    told: dict[str, Any] = {"deployment": "main", "base": BASE, "job": job_key(id), "what": "unlocked for 18 min"}
    return ScanFind.objects.create(run=of, **(told | facts))


def card(client: Client, scan: ScannerKind) -> str:
    scanners_views.forget()
    page = text(client, "/scanners/now")
    found = re.search(rf'<section [^>]*aria-labelledby="scan-{scan.value}".*?</section>', page, re.DOTALL)
    assert found, page
    return found[0]


def badge(html: str) -> str:
    found = re.search(r'<span class="badge" data-state="[\w-]+">([\w ]+)</span>', html)
    assert found, html
    return found[1]


# -- cards


def test_there_is_a_card_for_each_with_what_it_looks_for(admin: Client) -> None:
    for scan in ScannerKind:
        told = card(admin, scan)
        assert scan.purpose in told
        assert badge(told) == "never ran"


def test_a_card_says_what_the_last_run_came_to(admin: Client) -> None:
    ran(
        ScannerKind.STALE_CHECK,
        looked=1204,
        found=5,
        acted=3,
        refused=1,
        holds=("The budget of bull:mail is used up.",),
    )
    told = card(admin, ScannerKind.STALE_CHECK)
    assert badge(told) == "healthy"
    for said in (
        "1,204 <span",
        "5 <span>matched",
        "3 <span>changed",
        "1 refused",
        "took 400 ms",
        "The budget of bull:mail",
    ):
        assert said in told, said


def test_one_that_failed_says_why_and_when_it_last_succeeded(admin: Client) -> None:
    ran(ScannerKind.AUTO_RETRY, succeeded_at=now_ms() - 2 * _HOUR, trouble="it did not answer within 0.5 s")
    told = card(admin, ScannerKind.AUTO_RETRY)
    assert badge(told) == "failing"
    assert "it did not answer within 0.5 s" in told
    assert re.search(r"Last success</dt><dd><time [^>]*>2 h ago", told)


def test_one_that_should_have_run_since_is_late(admin: Client) -> None:
    ran(ScannerKind.STALE_CHECK, ago=2 * _HOUR)
    assert badge(card(admin, ScannerKind.STALE_CHECK)) == "late"
    assert "overdue" in card(admin, ScannerKind.STALE_CHECK)


def test_a_card_says_where_it_acts(admin: Client) -> None:
    assert 'enabled</span> <span class="muted">in all 2 queues' in card(admin, ScannerKind.STALE_CHECK)
    assert 'dry run</span> <span class="muted">in all 2 queues' in card(admin, ScannerKind.ORPHAN_WATCH)
    assert "no job table is known" in card(admin, ScannerKind.STARTUP_SWEEP)
    assert "Policy</dt>" not in card(admin, ScannerKind.COLLECT)
    written = json.dumps({"orphan_watch": {"mode": "enabled"}})
    PolicyLayer.objects.create(deployment="main", base=BASE, written=written, by="anna", at=now_ms())
    assert 'enabled</span> <span class="muted">in 1 of 2 queues' in card(admin, ScannerKind.ORPHAN_WATCH)


def test_a_paused_one_says_by_whom_and_why(admin: Client) -> None:
    ScannerPause.objects.create(scanner="prune", by="anna", at=now_ms(), reason="the disk is being moved")
    told = card(admin, ScannerKind.PRUNE)
    assert badge(told) == "paused"
    assert "by <b>anna</b>" in told
    assert "the disk is being moved" in told
    assert ">Resume</a>" in told


def test_without_its_state_store_the_page_says_that_nothing_is_known(desk: Desk, admin: Client) -> None:
    desk.state.pause()
    try:
        told = card(admin, ScannerKind.STALE_CHECK)
    finally:
        desk.state.resume()
    assert badge(told) == "unknown"
    assert "The last runs are in the state store, which does not answer" in told


@pytest.mark.parametrize(
    ("sign", "says"),
    [
        (None, "no leader"),
        (SchedulerStatus("web-1", 77, None, 0, 0, "x"), "only reads: the database does not answer"),
        (
            SchedulerStatus("web-1", 77, 4711, 0, 0, "x"),
            'title="term 4711">Leader: <code>web-1</code> (process 77) · since',
        ),
    ],
)
def test_it_says_who_leads(
    admin: Client, monkeypatch: pytest.MonkeyPatch, sign: SchedulerStatus | None, says: str
) -> None:
    monkeypatch.setattr(state_cache, "leader", lambda: sign)
    assert says in text(admin, "/scanners")


def test_what_was_read_a_moment_ago_is_not_read_again_for_each_viewer(
    admin: Client, django_assert_max_num_queries: Any
) -> None:
    text(admin, "/scanners/now")
    with django_assert_max_num_queries(2):  # session and person
        text(admin, "/scanners/now")


# -- runs


def test_runs_are_listed_newest_first_with_who_asked(admin: Client) -> None:
    first = run(looked=12, found=3)
    second = run(actor=ANNA, reason="after the deploy", dry_run=True, deployment="main", base=BASE)
    page = text(admin, "/scanners/stale-check")
    assert page.index(f"Run {second.pk}</a>") < page.index(f"Run {first.pk}</a>")
    assert "<b>anna</b>, dry run" in page
    assert "after the deploy" in page
    assert ">scheduled<" in page
    assert ">3.2 s</td>" in page


def test_runs_come_in_pages(admin: Client) -> None:
    made = [run() for _ in range(60)]
    page = text(admin, "/scanners/stale-check")
    older = re.search(r'id="next" rel="next" href="(\?cursor=\d+)"', page)
    assert older
    last = text(admin, f"/scanners/stale-check{older[1]}")
    assert f">Run {made[0].pk}</a>" in last
    assert f">Run {made[-1].pk}</a>" not in last
    assert "← Newest" in last


def test_a_scanner_that_is_none_is_told(admin: Client) -> None:
    for address in ("/scanners/nope", "/scanners/nope/now", "/scanners/nope/order", "/scanners/nope/pause"):
        assert admin.get(address).status_code == 404


def test_a_run_tells_what_was_done_to_which_job_and_what_allowed_it(admin: Client) -> None:
    one = run(looked=12, found=3, acted=1, refused=1, epoch=4711, holds=json.dumps(["The store was restarted."]))
    find(one, "7", act="requeue", outcome="done", policy="Acts after 15 min.", audit=12)
    find(one, "8", act="requeue", outcome="refused", why="It is locked again.", policy="Acts after 15 min.", audit=13)
    find(one, "9", policy="The policy lets it only observe.")
    page = text(admin, f"/scanners/runs/{one.pk}")
    for said in (
        "requeue: done",
        "requeue: refused",
        "It is locked again.",
        "/audit/12",
        "checked only",
        "term 4711",
    ):
        assert said in page, said
    assert "Limited:</b> The store was restarted." in page
    assert f"/queues/main/{BASE}/jobs/7" in page


def test_many_finds_come_in_pages(admin: Client) -> None:
    one = run(found=120)
    for number in range(60):
        find(one, str(number))
    page = text(admin, f"/scanners/runs/{one.pk}")
    after = re.search(r'id="next" rel="next" href="(\?cursor=\d+)"', page)
    assert after
    assert ">59</a>" in text(admin, f"/scanners/runs/{one.pk}{after[1]}")


def test_a_run_refreshes_until_it_is_over(admin: Client) -> None:
    one = run(status="running", ended_at=None)
    assert "hx-get" in text(admin, f"/scanners/runs/{one.pk}/now")
    ScanRun.objects.update(status="ended", ended_at=now_ms())
    assert "hx-get" not in text(admin, f"/scanners/runs/{one.pk}/now")
    assert "Not found" in text(admin, "/scanners/runs/999", 404)


def test_what_an_error_gives_away_is_redacted_for_everybody(admin: Client) -> None:
    one = run(status="failed", trouble=f"refused: password={SECRET}")
    find(one, what=f"failed with password={SECRET}", policy=f"never after password={SECRET}", why=f"password={SECRET}")
    ran(ScannerKind.STALE_CHECK, succeeded=False, trouble=f"refused: password={SECRET}")
    viewer = browser(person(UserRole.VIEWER))
    for address in (f"/scanners/runs/{one.pk}", "/scanners", "/scanners/stale-check"):
        assert SECRET not in text(viewer, address)
    assert SECRET not in text(admin, f"/scanners/runs/{one.pk}")


def test_harmful_names_are_only_text(admin: Client) -> None:
    one = run(
        actor=canonical({"kind": "person", "name": NASTY}), reason=NASTY, trouble=NASTY, holds=json.dumps([NASTY])
    )
    base = slug(f"bull:{NASTY}")
    find(one, NASTY, base=base, what=NASTY, act="requeue", outcome="refused", why=NASTY, policy=NASTY)
    run(deployment="main", base=base)
    ScannerPause.objects.create(scanner="prune", by=NASTY, at=now_ms(), reason=NASTY)
    ran(ScannerKind.STALE_CHECK, holds=(NASTY,), trouble=NASTY)
    pages = ("/scanners", "/scanners/stale-check", f"/scanners/runs/{one.pk}", "/scanners/prune/pause")
    for address in pages:
        assert "<img" not in text(admin, address), address


# -- orders


def order(client: Client, scan: ScannerKind = ScannerKind.STALE_CHECK, **fields: str) -> Any:
    return client.post(f"/scanners/{scan.value}/order", {"reason": REASON} | fields)


def test_an_operator_has_it_look_and_follows_it(admin: Client) -> None:
    answer = order(browser(person(UserRole.OPERATOR)), how="dry-run")
    made = ScanRun.objects.get()
    assert answer.headers["Location"] == f"/scanners/runs/{made.pk}"
    assert (made.dry_run, made.reason, made.status) == (True, REASON, "waiting")
    assert AuditEntry.objects.get().reason == REASON


def test_only_an_admin_has_it_act(admin: Client) -> None:
    operator = browser(person(UserRole.OPERATOR))
    assert "disabled" in text(operator, "/scanners/stale-check/order?how=run")
    assert order(operator, how="run").status_code == 403
    assert not ScanRun.objects.exists()
    assert order(admin, how="run").status_code == 302
    assert not ScanRun.objects.get().dry_run


@pytest.mark.parametrize("fields", [{}, {"how": ""}, {"how": "maybe"}])
def test_what_is_not_said_is_only_looked_at(admin: Client, fields: dict[str, str]) -> None:
    order(admin, **fields)
    assert ScanRun.objects.get().dry_run


@pytest.mark.parametrize("written", [f"main/{BASE}", BASE])
def test_it_can_be_of_one_queue(admin: Client, written: str) -> None:
    order(admin, queue=written)
    made = ScanRun.objects.get()
    assert (made.deployment, made.base) == ("main", BASE)


@pytest.mark.parametrize("written", ["bull:nope", "main/~zz", "nowhere/bull:mail", "main/"])
def test_a_queue_that_no_snapshot_has_is_told(admin: Client, written: str) -> None:
    page = order(admin, queue=written).content.decode()
    assert "No snapshot contains this queue." in page
    assert not ScanRun.objects.exists()


def test_an_order_says_where_it_would_act(admin: Client) -> None:
    assert "It may change jobs in 2 of 2 queues" in text(admin, "/scanners/stale-check/order")
    assert "No changes: it is in dry run in every policy." in text(admin, "/scanners/orphan-watch/order")


def test_an_order_without_a_reason_is_none(admin: Client) -> None:
    assert "Enter a reason." in order(admin, reason=" ").content.decode()
    assert not ScanRun.objects.exists()


def test_one_that_is_paused_only_looks(admin: Client) -> None:
    ScannerPause.objects.create(scanner="stale-check", by="anna", at=now_ms())
    assert "Stale-check is paused." in order(admin, how="run").content.decode()
    assert order(admin, how="dry-run").status_code == 302


def test_what_has_nothing_to_arm_simply_runs(admin: Client) -> None:
    page = text(admin, "/scanners/prune/order")
    assert 'name="how"' not in page
    assert order(admin, ScannerKind.PRUNE).status_code == 302
    assert not ScanRun.objects.get().dry_run
    assert "always runs" in order(admin, ScannerKind.COLLECT).content.decode()


def test_in_a_dialog_the_browser_is_sent_to_the_run(admin: Client) -> None:
    headers = {"HX-Request": "true"}
    assert "<html" not in admin.get("/scanners/stale-check/order", headers=headers).content.decode()
    answer = admin.post("/scanners/stale-check/order", {"reason": REASON}, headers=headers)
    assert answer.headers["HX-Redirect"] == f"/scanners/runs/{ScanRun.objects.get().pk}"


# -- pauses


def test_one_is_paused_and_goes_on_again(admin: Client) -> None:
    answer = admin.post("/scanners/auto-retry/pause?back=/scanners", {"do": "pause", "reason": REASON})
    assert answer.headers["Location"] == "/scanners"
    assert ScannerPause.objects.get().reason == REASON
    assert "Auto-retry is paused." in text(admin, "/scanners")
    assert "Resume</button>" in text(admin, "/scanners/auto-retry/pause")
    admin.post("/scanners/auto-retry/pause", {"do": "go-on", "reason": REASON})
    assert not ScannerPause.objects.exists()
    assert AuditEntry.objects.count() == 2


def test_who_changes_something_sees_it_at_once(admin: Client) -> None:
    assert "by <b>" not in text(admin, "/scanners/now")
    admin.post("/scanners/prune/pause", {"reason": REASON})
    assert "by <b>" in text(admin, "/scanners/now")


def test_what_somebody_else_did_meanwhile_is_told(admin: Client) -> None:
    ScannerPause.objects.create(scanner="prune", by="anna", at=now_ms())
    assert "It is already paused." in admin.post("/scanners/prune/pause", {"reason": REASON}).content.decode()
    ScannerPause.objects.all().delete()
    answer = admin.post("/scanners/prune/pause", {"do": "go-on", "reason": REASON})
    assert "It is no longer paused." in answer.content.decode()


def test_without_a_reason_nothing_is_paused(admin: Client) -> None:
    assert "Enter a reason." in admin.post("/scanners/prune/pause", {"reason": ""}).content.decode()
    assert not ScannerPause.objects.exists()


@pytest.mark.parametrize("role", [UserRole.VIEWER, UserRole.OPERATOR])
def test_nobody_else_pauses(admin: Client, role: UserRole) -> None:
    other = browser(person(role))
    assert "/pause" not in text(other, "/scanners")
    assert other.post("/scanners/prune/pause", {"reason": REASON}).status_code == 403


def test_a_viewer_reads_and_is_offered_nothing(admin: Client) -> None:
    page = text(browser(person(UserRole.VIEWER)), "/scanners")
    assert "/order" not in page
    assert "stale-check" in page


def test_what_every_page_lives_on_is_not_paused(admin: Client) -> None:
    assert "/scanners/collect/pause" not in text(admin, "/scanners")
    page = admin.post("/scanners/collect/pause", {"reason": REASON}).content.decode()
    assert "Without collect every page would be out of date." in page
