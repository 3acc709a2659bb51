"""Sweeps against workers that finish at the same moment, row by row, in PostgreSQL: no finished row is overwritten."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from recovery.backends.job_tables import queries as job_tables_queries
from recovery.backends.job_tables import sweep
from recovery.backends.job_tables.sweep import OrphanRow, SweepTrigger
from recovery.stores.sql.sql_client import SqlClient
from tests.support.stores.tables import REF, Jobs, jobs_in

pytestmark = pytest.mark.django_db
ROWS = 100  # of a round: what one transaction of a sweep takes
# Whatever makes something else of a finished row is written down by the database itself.
TRAP = """
CREATE TABLE overwritten (id bigint, was text, became text);
CREATE FUNCTION trap() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF OLD.status IN ('done', 'failed') AND NEW IS DISTINCT FROM OLD THEN
    INSERT INTO overwritten VALUES (OLD.id, OLD.status, NEW.status);
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER trap BEFORE UPDATE ON jobs FOR EACH ROW EXECUTE FUNCTION trap();
"""
FILL = """
INSERT INTO jobs (status, tries, worker, started_at, lease_until)
SELECT 'running', mod(i, 3), 'a', now() - interval '5 min', now() - interval '1 min' FROM generate_series(1, %s) AS i
"""
FINISH = "UPDATE jobs SET status = %s, finished_at = now() WHERE id = %s AND status IN ('running', 'pending')"


@pytest.fixture
def trapped(postgresql: Any, tmp_path: Path) -> Iterator[Jobs]:
    with jobs_in(postgresql, tmp_path) as jobs:
        jobs.create()
        postgresql.run(TRAP)
        yield jobs


@pytest.mark.parametrize("rows", [300, pytest.param(10_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("sweepers", [1, 2])
def test_no_finished_row_is_overwritten(trapped: Jobs, rows: int, sweepers: int) -> None:
    wire = trapped.wire(timeout=60, lease_grace=0)
    chance = random.Random(rows)
    for at in range(rows // ROWS):
        one_round(trapped, wire, sweepers, chance, lingers=at % 3 == 2)
    assert trapped.place.run("SELECT * FROM overwritten") == []


def one_round(jobs: Jobs, wire: SqlClient, sweepers: int, chance: random.Random, *, lingers: bool) -> None:
    jobs.place.run("DELETE FROM jobs")
    jobs.place.run(FILL.replace("%s", str(ROWS)))
    ((_, found),) = sweep.orphans(wire, REF, SweepTrigger())
    assert len(found) == ROWS
    finishes = {int(one.look.row.id): chance.choice(["done", "done", "failed"]) for one in found}
    order = chance.sample(list(finishes), ROWS)
    met, first = threading.Event(), chance.randrange(ROWS)  # so many have finished when the sweep comes
    with ThreadPoolExecutor(sweepers + 1) as pool:
        swept = [pool.submit(take, wire, found, met) for _ in range(sweepers)]
        reports = [(finishes[id], id) for id in order]
        ended = pool.submit(finish, jobs.place.url, reports, first, met, lingers).result()
    taken = [id for one in swept for id in one.result()]
    assert len(taken) == len(set(taken)), "no row is swept twice"
    check(jobs, ended, set(taken))


def take(wire: SqlClient, found: Sequence[OrphanRow], met: threading.Event) -> list[int]:
    """What this sweep changed."""
    with job_tables_queries.table_context(wire, REF) as scene:
        assert met.wait(60)
        return [int(one.id) for one in sweep.recover_rows(scene, found, SweepTrigger()) if one.outcome.value == "done"]


def finish(url: str, rows: list[tuple[str, int]], first: int, met: threading.Event, lingers: bool) -> dict[int, str]:
    """A worker that reports the end of one row after the other; some keep a row for a moment before they commit."""
    ended = {}
    with psycopg.connect(url, autocommit=not lingers) as connection:
        for at, (status, id) in enumerate(rows):
            if at == first:
                met.set()
            if lingers:
                connection.execute("SELECT pg_sleep(0.0002) FROM jobs WHERE id = %s FOR UPDATE", [id])
            if connection.execute(FINISH, [status, id]).rowcount:
                ended[id] = status
            if lingers:
                connection.commit()
    return ended


def check(jobs: Jobs, ended: dict[int, str], taken: set[int]) -> None:
    """A late success wins. What no worker finished is as the sweep left it, with one attempt more."""
    for id, status, tries in jobs.place.run("SELECT id, status, tries FROM jobs"):
        if id in ended:
            assert status == ended[id]
        else:
            assert id in taken, "a row that nobody finished was failed by the sweep, so no worker could"
            assert (status, tries) == ("failed", 3)
