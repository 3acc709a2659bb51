"""Job tables from the shell: `queues`, `orphans`, `act` and `doctor`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from recovery.models import AuditEntry
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import JOBS, TABLE, Sqlite, TableBench, configured

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_store: Store) -> Iterator[TableBench]:
    place = Sqlite(tmp_path / "app.sqlite3")
    place.empty()
    place.run(JOBS)
    with configured(tmp_path, monkeypatch, state_store, {"app": place}, TABLE):
        yield TableBench(place, state_store)


def run(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_queues_lists_it(bench: TableBench) -> None:
    bench.add(1, 2)
    bench.held(3)
    (row,) = json.loads(run("queues", "--json"))["queues"]
    assert (row["deployment"], row["base"], row["library"]) == ("app", "jobs", "table")
    assert (row["waiting"], row["active"], row["workers"], row["error"]) == (2, 1, 1, None)
    assert "app/jobs" in run("queues")


def test_orphans_lists_its_lost_rows(bench: TableBench) -> None:
    """No scheduler leads, so no sweep will take it."""
    bench.held(1)
    bench.orphan(2)
    (row,) = json.loads(run("orphans", "--json"))["orphans"]
    assert (row["base"], row["job"], row["verdict"], row["suggests"]) == ("jobs", "2", "abandoned", "requeue")
    assert "The lease of w1 ended" in run("orphans")


def test_a_table_that_cannot_be_read_is_told_with_the_status_of_a_silent_store(bench: TableBench) -> None:
    bench.place.run("DROP TABLE jobs")
    with pytest.raises(CommandError) as raised:
        run("orphans", "--json")
    assert raised.value.returncode == 4


def test_act_requeues_a_row_and_refuses_one_that_is_held(bench: TableBench) -> None:
    bench.orphan(1)
    bench.held(2)
    out = StringIO()
    with pytest.raises(SystemExit) as raised:
        call_command(
            "act", "requeue", "--queue", "app/jobs", "--job", "1", "--job", "2", "--reason", "r", "--json", stdout=out
        )
    assert raised.value.code == 3
    results = {one["job"]: one["outcome"] for one in json.loads(out.getvalue())["results"]}
    assert results == {"1": "done", "2": "refused"}
    assert bench.states() == {1: "queued", 2: "running"}
    assert AuditEntry.objects.filter(deployment="app").exists()


def test_act_takes_all_orphans_of_a_table(bench: TableBench) -> None:
    bench.orphan(*range(1, 251))
    bench.held(251)
    run("act", "requeue", "--queue", "jobs", "--all", "orphan", "--reason", "r", "--yes")
    assert set(list(bench.states().values())[:250]) == {"queued"}
    assert bench.states()[251] == "running"


def test_act_with_force_takes_a_row_that_is_held(bench: TableBench) -> None:
    bench.held(1)
    run("act", "requeue", "--queue", "app/jobs", "--job", "1", "--reason", "r", "--force", "--yes")
    assert bench.states() == {1: "queued"}


def test_what_does_not_fit_rows_is_refused_with_the_reason(bench: TableBench) -> None:
    bench.add(1)
    with pytest.raises(CommandError, match="Rows belong to their application") as raised:
        run("act", "remove", "--queue", "app/jobs", "--job", "1", "--reason", "r", "--yes")
    assert raised.value.returncode == 3


def test_the_doctor_reads_every_table(bench: TableBench) -> None:
    from recovery.management.doctor import runner as doctor_runner

    bench.add(1)
    said = {finding.about: finding for finding in doctor_runner.examine()}
    assert "1 waiting" in said["table app/jobs"].says
    bench.place.run("ALTER TABLE jobs RENAME COLUMN owner TO who")
    says = " ".join(finding.says for finding in doctor_runner.examine() if finding.about == "table app/jobs")
    assert "no column owner" in says
