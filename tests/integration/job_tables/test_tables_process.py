"""A row that its worker left behind, put right by the real scheduler, with everything that belongs to it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.processes.site import Site
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import JOBS, TABLE, Sqlite, TableBench
from tests.support.waiting import until

_IMPORTS = "CREATE TABLE imports (id INTEGER PRIMARY KEY, stage TEXT)"
_HOOK = """
[[hooks]]
name = "imports"
queue = "app/jobs"
database = "app"
table = "imports"
id = "id"
path = "import"
stage = "stage"
from = ["importing"]
to = "pending"
failed = "broken"
"""


@pytest.fixture
def bench(tmp_path: Path) -> TableBench:
    place = Sqlite(tmp_path / "app.sqlite3")
    place.empty()
    place.run(JOBS)
    place.run(_IMPORTS)
    for id in (1, 2, 3):
        place.run("INSERT INTO imports VALUES (?, 'importing')", id)
    return TableBench(place)


@pytest.fixture
def site(bench: TableBench, valkey: Store, state_store: Store) -> Iterator[Site]:
    database = f'[[databases]]\nname = "app"\nurl = "{bench.place.url}"\ntimeout = 10\n'
    with Site(valkey, state_store, settings=f"startup_sweep = 5\n{database}{TABLE}{_HOOK}") as site:
        yield site


def test_the_scheduler_sweeps_audits_closes_the_incident_and_calls_the_hook(site: Site, bench: TableBench) -> None:
    bench.orphan(1, payload='{"import": 1}')
    bench.orphan(2, payload='{"import": 2}', attempts=2)
    bench.held(3, payload='{"import": 3}')
    until(lambda: bench.states() == {1: "queued", 2: "failed", 3: "running"}, 60, "the rows are swept")
    until(lambda: _stages(bench) == {1: "pending", 2: "broken", 3: "importing"}, 60, "the application's rows follow")
    done = until(lambda: _audited(site), 60, "the audit has both")
    assert {(kind, actor) for kind, actor in done} == {("scanner", "startup-sweep")}
    until(lambda: not _ask(site, "SELECT 1 FROM recovery_incident WHERE closed_at IS NULL"), 60)
    until(lambda: not _ask(site, "SELECT 1 FROM recovery_hookcall"), 60)


def _stages(bench: TableBench) -> dict[int, str]:
    return dict(bench.place.run("SELECT id, stage FROM imports"))


def _audited(site: Site) -> list[tuple[str, ...]]:
    return _ask(
        site,
        "SELECT actor_kind, actor FROM recovery_auditentry"
        " WHERE deployment = 'app' AND phase = 'outcome' AND act = 'requeue'",
    )


def _ask(site: Site, statement: str) -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(site.web.directory / "unstall.sqlite3", timeout=30)) as connection:
        return connection.execute(statement).fetchall()
