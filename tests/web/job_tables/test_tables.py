"""A job table on every page: among the queues, its own, a row's, the inbox, the dialogs, search; and in the API."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.live import state_cache
from recovery.domain.queues.types import Snapshot
from recovery.models import AuditEntry
from recovery.stores import registry
from tests.support.machines import Machine, refused, told
from tests.support.people import browser, person
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import JOBS, TABLE, Sqlite, TableBench, configured
from tests.support.stuck.watching import now_ms
from tests.web.acting import through
from tests.web.conftest import FRESH

pytestmark = pytest.mark.django_db(transaction=True)

QUEUE = "/queues/app/jobs/"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_store: Store) -> Iterator[TableBench]:
    place = Sqlite(tmp_path / "app.sqlite3")
    place.empty()
    place.run(JOBS)
    with configured(tmp_path, monkeypatch, state_store, {"app": place}, TABLE):
        made = TableBench(place, state_store)
        newest: list[Snapshot] = []
        monkeypatch.setattr(state_cache, "newest_snapshot", lambda: newest[-1] if newest else None)
        monkeypatch.setattr(state_cache, "health", lambda: FRESH)
        made.add(1, 2)
        made.held(3, owner="importer-1")
        made.orphan(4, 5, owner="importer-2")
        made.add(6, state="failed", finished_at=now_ms(), last_error="no route to host", attempts=3)
        made.add(7, state="done", finished_at=now_ms())
        newest.append(made.collect())
        made.watch()
        yield made


def text(address: str, role: UserRole = UserRole.ADMIN, **headers: str) -> str:
    answer = browser(person(role)).get(address, headers=headers)
    assert answer.status_code == 200, answer.content.decode()
    return html.unescape(answer.content.decode())


def client(role: UserRole = UserRole.ADMIN) -> Client:
    return browser(person(role))


def test_the_table_of_queues_lists_it_with_its_counts(bench: TableBench) -> None:
    page = text("/queues")
    row = re.search(r"<tr data-row.*?</tr>", page, re.DOTALL)
    assert row
    assert ">jobs</a>" in row[0]
    assert "Table" in row[0]
    for label, value in (("Waiting", "2"), ("Active", "3"), ("Failed", "1"), ("Stuck", "2"), ("Stalled check", "–")):
        assert re.search(rf'data-label="{label}">{value}<', row[0]), (label, row[0])


def test_the_filter_knows_its_flavour(bench: TableBench) -> None:
    assert ">jobs</a>" in text("/queues?q=flavour:table")
    assert ">jobs</a>" not in text("/queues?q=flavour:bullmq")


@pytest.mark.parametrize("tab", ["active", "waiting", "failed", "completed", "owners", "policy", "history"])
def test_its_page_has_a_tab_for_each_state_and_for_what_else_there_is(bench: TableBench, tab: str) -> None:
    page = text(f"{QUEUE}?tab={tab}")
    assert f'id="tab-{tab}"' in page
    assert "stalled check" not in page
    assert 'class="unreadable' not in page


def test_the_head_says_how_lost_rows_are_put_back(bench: TableBench) -> None:
    page = text(QUEUE)
    assert "2 owners with running rows" in page
    assert "a lost row is requeued within 1 min" in page
    assert "Signs that a worker runs a row: its lease in lease_until." in page


def test_the_active_rows_have_verdicts_and_the_buttons_that_fit(bench: TableBench) -> None:
    page = text(f"{QUEUE}?tab=active")
    rows = dict(re.findall(r'<tr data-row[^>]*>.*?class="id" href="[^"]*">(\d+)</a>(.*?)</tr>', page, re.DOTALL))
    assert rows.keys() == {"3", "4", "5"}
    assert "importer-1 holds it; its lease has" in rows["3"]
    assert "act=" not in rows["3"]
    assert "The lease of importer-2 ended 1 min ago and was not renewed." in rows["4"]
    assert "A sweep recovers it within 1 min, and it waits again." in rows["4"]
    assert re.search(r'act=requeue[^>]*data-kind="primary"', rows["4"])
    assert "act=fail" in rows["4"]
    assert "act=remove" not in page
    assert "act=release" not in page


def test_the_owners_are_told_with_their_rows(bench: TableBench) -> None:
    page = text(f"{QUEUE}?tab=owners")
    assert "importer-1" in page
    assert "2 running" in page


def test_nothing_is_done_to_the_table_as_a_whole_but_a_retry(bench: TableBench) -> None:
    page = text(QUEUE)
    assert "Retry all failed" in page
    for act in ("pause", "drain", "clean"):
        assert f"act={act}" not in page


def test_a_row_has_a_page_with_its_data_and_its_error(bench: TableBench) -> None:
    page = text(f"{QUEUE}jobs/4")
    assert 'data-state="orphan">orphan' in page
    assert "<text of 5 characters>" in page
    assert "a.csv" not in page
    assert "importer-2" in page
    assert "no route to host" in text(f"{QUEUE}jobs/6")
    assert "no route to host" in text(f"{QUEUE}jobs/6?tab=error")
    assert "payload" in text(f"{QUEUE}jobs/4?tab=raw")


def test_a_viewer_sees_no_secret_of_a_row(bench: TableBench) -> None:
    bench.place.run("UPDATE jobs SET payload = ? WHERE id = 4", '{"password": "hunter2", "file": "a.csv"}')
    bench.forget()
    page = text(f"{QUEUE}jobs/4", UserRole.VIEWER) + text(f"{QUEUE}jobs/4?tab=raw", UserRole.VIEWER)
    assert "hunter2" not in page
    assert "a.csv" not in page
    assert "hunter2" not in text(f"{QUEUE}jobs/4", UserRole.OPERATOR)
    for tab in ("data", "raw"):
        answer = client(UserRole.OPERATOR).post(f"{QUEUE}jobs/4/reveal?tab={tab}")
        assert "hunter2" in answer.content.decode()


def test_a_row_that_is_not_there_is_missing(bench: TableBench) -> None:
    assert client().get(f"{QUEUE}jobs/99").status_code == 404
    assert client().get("/queues/app/other/").status_code == 404


def test_the_inbox_lists_lost_rows(bench: TableBench) -> None:
    page = text("/stuck")
    assert re.findall(r'class="id" href="([^"]*)">', page) == [f"{QUEUE}jobs/4", f"{QUEUE}jobs/5"]
    assert "Likely cause: <b>crashed</b> (importer-2 holds none of its 2 rows any more)" in page
    assert "importer-1" not in page


def test_a_row_is_requeued_through_the_dialog(bench: TableBench) -> None:
    address = "/act?act=requeue&job=app/jobs/4"
    shown = text(address)
    assert "The row waits again, with one attempt more" in shown
    assert "Count as an attempt" in shown
    assert "Reset stalled counter" not in shown
    answer = through(client(), address)
    assert answer.status_code == 200
    assert bench.states()[4] == "queued"
    assert (bench.one(4, "attempts"), bench.one(4, "owner")) == (1, None)
    assert AuditEntry.objects.filter(act="requeue", deployment="app", phase="outcome").count() == 1
    assert "requeue" in text(f"{QUEUE}jobs/4").lower()


def test_a_row_that_somebody_holds_takes_force(bench: TableBench) -> None:
    address = "/act?act=requeue&job=app/jobs/3"
    page = text(address)
    assert "Its row shows that a worker is running it" in page
    assert 'name="force"' in page
    client_ = client()
    answer = client_.post(address, {"step": "look", "has_force": "1", "force": "on"})
    assert answer.status_code == 200
    token = re.search(r'name="token" value="([^"]+)"', answer.content.decode())
    assert token
    form = {
        "token": html.unescape(token[1]),
        "step": "confirm",
        "reason": "it is dead",
        "has_force": "1",
        "force": "on",
    }
    assert client_.post(address, form).status_code == 200
    assert bench.states()[3] == "queued"


def test_all_failed_rows_are_retried_by_the_scheduler(bench: TableBench) -> None:
    answer = through(client(), "/act?act=retry&queue=app/jobs&all=failed", word="jobs")
    assert answer.status_code in (200, 302)
    from recovery.actions.bulk.bulk_runs import BulkRunner
    from recovery.domain.scheduler.leader_token import LeaderToken, always_leader

    runner = BulkRunner(registry.registry(), LeaderToken(1, always_leader))
    runner.run(0)
    runner.close()
    assert bench.states()[6] == "queued"


def test_search_finds_a_row_by_id_by_name_and_in_its_data(bench: TableBench) -> None:
    assert f"{QUEUE}jobs/4" in text("/search?q=4")
    assert f"{QUEUE}jobs/" not in text("/search?q=99")
    assert f"{QUEUE}jobs/1" in text("/search?q=imp&by=name&queue=app/jobs")
    assert f"{QUEUE}jobs/1" in text("/search?q=a.csv&by=data&queue=app/jobs")


def test_the_palette_finds_it(bench: TableBench) -> None:
    assert QUEUE in text("/palette?q=jo", HX_Request="true")


def test_the_policy_says_what_counts_for_its_rows(bench: TableBench) -> None:
    page = text(f"{QUEUE}?tab=policy")
    assert "Lease grace period" in page
    assert "The startup-sweep acts here automatically." in page
    assert "The row waits again, with one attempt more" in page
    assert "Rows belong to their application: delete them there." in page


def test_a_database_that_is_read_only_offers_nothing(
    bench: TableBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "unstall.toml"
    path.write_text(path.read_text().replace("timeout = 10", "timeout = 10\nread_only = true"))
    registry.reset()
    page = text(f"{QUEUE}?tab=active")
    assert "act=requeue" not in page
    assert "Read-only by configuration: app." in page
    assert "not swept" in page


def test_a_database_that_is_away_is_told_and_the_page_stands(bench: TableBench) -> None:
    bench.place.run("DROP TABLE jobs")
    page = text(f"{QUEUE}?tab=failed")
    assert "no such table" in page or "has no table" in page
    assert 'id="tab-failed"' in page


# -- the API


def test_a_machine_reads_tables_like_queues(bench: TableBench) -> None:
    machine = Machine(TokenScope.READ)
    (queue,) = told(machine.get("queues"))["queues"]
    assert (queue["library"], queue["counts"]["active"], queue["trouble"]) == ("table", 3, None)
    whole = told(machine.get("queues/app/jobs"))
    assert whole["states"] == ["active", "waiting", "failed", "completed"]
    jobs = {job["id"]: job for job in told(machine.get("queues/app/jobs/jobs?state=active"))["jobs"]}
    assert (jobs["3"]["has_lock"], jobs["4"]["has_lock"]) == (True, False)
    assert jobs["4"]["lease_until"]
    assert (jobs["4"]["verdict"]["kind"], jobs["3"]["verdict"]["kind"]) == ("orphan", "running")
    assert told(machine.get("queues/app/jobs/jobs/4"))["data"]["text"] == '{"file":"<text of 5 characters>"}'
    assert [one["id"] for one in told(machine.get("orphans"))["orphans"]] == ["4", "5"]


def test_a_machine_acts_on_rows_like_on_jobs(bench: TableBench) -> None:
    machine = Machine(TokenScope.READ, TokenScope.ACT, TokenScope.BULK)
    order = {"act": "requeue", "queue": "app/jobs", "jobs": [{"id": "4"}, {"id": "3"}, {"id": "99"}], "reason": "r"}
    results = {one["job"]: one["outcome"] for one in told(machine.post("actions", order))["results"]}
    assert results == {"4": "done", "3": "refused", "99": "missing"}
    assert (bench.states()[4], bench.states()[3]) == ("queued", "running")
    refused(machine.post("actions", order | {"act": "pause", "jobs": []}), 409, "unsupported")
