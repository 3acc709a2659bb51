"""Job tables in Chromium: every page in every look, and a lost row put back with a click."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Complaints
from tests.browser.test_every_page import LOOKS, Look, Stop, Walk
from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import JOBS, TABLE, Sqlite, TableBench
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until

NASTY = '<img src=x onerror="alert(1)">'
QUEUE = "/queues/app/jobs/"
_TABS = ("active", "waiting", "failed", "completed", "owners", "policy", "history")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> TableBench:
    place = Sqlite(tmp_path_factory.mktemp("app") / "app.sqlite3")
    place.empty()
    place.run(JOBS)
    bench = TableBench(place)
    bench.add(*range(1, 40))
    bench.held(101, owner="importer-1")
    bench.orphan(102, 103, owner="importer-2", kind=NASTY, payload=f'{{"file": "{NASTY[:10]}"}}')
    bench.add(201, state="failed", finished_at=now_ms(), last_error="no route to host", attempts=3)
    bench.add(301, state="done", finished_at=now_ms())
    return bench


@pytest.fixture(scope="module")
def table_site(bench: TableBench) -> Iterator[Site]:
    """No scanner sweeps its rows, so that lost ones stay lost."""
    settings = f'[[databases]]\nname = "app"\nlabel = "Shop"\nurl = "{bench.place.url}"\ntimeout = 10\n{TABLE}'
    settings += '[policy.startup_sweep]\nmode = "dry-run"\n'
    with Store() as queues, Store() as state, Site(queues, state, settings=settings) as site:
        until(lambda: b"102" in site.web.get("/stuck", "viewer").body, 60, "the lost rows are found")
        yield site


@pytest.fixture
def open_table(open_page: Callable[..., Page], table_site: Site) -> Callable[..., Page]:
    return lambda path, **chosen: open_page(path, site=table_site, **chosen)


@pytest.mark.parametrize("look", LOOKS, ids=str)
def test_every_page_of_a_table(open_table: Callable[..., Page], complaints: Complaints, look: Look) -> None:
    walk = Walk(open_table, complaints, look)
    walk.to(
        Stop("/queues", "Queues", has_axe=False),
        *(Stop(f"{QUEUE}?tab={tab}", "jobs", has_axe=tab in ("active", "owners")) for tab in _TABS),
        Stop(f"{QUEUE}?tab=active", "jobs", "viewer", has_axe=False),
        *(Stop(f"{QUEUE}jobs/102?tab={tab}", "102", has_axe=False) for tab in ("data", "options", "raw")),
        Stop(f"{QUEUE}jobs/201", "201"),
        Stop("/stuck", "Stuck", has_axe=False),
        Stop("/act?act=requeue&job=app/jobs/102", "Requeue 1 job in"),
        Stop("/act?act=requeue&job=app/jobs/101", "Requeue 1 job in", "operator", has_axe=False),
        Stop("/search?q=102", "Find a job", has_axe=False),
        Stop(f"{QUEUE}jobs/999", "Job not found", status=404, has_axe=False),
    )
    page = walk.to(Stop(f"{QUEUE}?tab=active", "jobs", has_axe=False))
    assert page.locator("main img, main script").count() == 0
    complaints.clear()


def test_a_lost_row_is_put_back_with_a_click(open_table: Callable[..., Page], bench: TableBench) -> None:
    page = open_table(f"{QUEUE}?tab=active")
    row = page.locator("tr[data-row]", has=page.get_by_role("link", name="103", exact=True))
    expect(row).to_contain_text("No scanner checks this table now.")
    row.get_by_role("link", name="Requeue job 103").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("The row waits again, with one attempt more")
    dialog.get_by_label("Reason").fill("importer-2 is gone")
    dialog.get_by_role("button", name="Requeue 1 job").click()
    until(lambda: bench.states()[103] == "queued", 30)
    expect(row).to_have_count(0, timeout=30_000)
    assert bench.one(103, "attempts") == 1
