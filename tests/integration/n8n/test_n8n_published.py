"""From the leader's look to whoever reads it: the state store, the inbox, the shell, the doctor."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from time import time as clock
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from recovery.alerts.detectors import AlertDetectors
from recovery.config import load
from recovery.domain.alerts.types import AlertCheck, AlertKind
from recovery.domain.n8n.mismatches import MismatchKind
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.domain.stuck.types import VerdictKind
from recovery.management import one_off_snapshot
from recovery.management.commands import n8n as command
from recovery.management.doctor import n8n as checkup_n8n
from recovery.management.doctor import runner as doctor_runner
from recovery.management.doctor.findings import DoctorLevel
from recovery.n8n import comparison_store, instance_store, job_execution
from recovery.scanners.n8n.comparison import ComparisonScanner
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.scanners.other_consoles import OtherConsoles
from recovery.scheduler.plan import leader_plan, reader_plan
from recovery.stores import registry
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state.shared_read import windows
from tests.support.n8n.n8n_instances import HEAD, register
from tests.support.n8n.n8n_yard import Yard
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import Postgresql
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db(transaction=True)
MINUTES = 255.0  # four, and a quarter: the clock of the database is not that of this process


@pytest.fixture
def stores(
    yard: Yard, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., ConnectionRegistry]]:
    """Configures this process, and gives its registry."""

    def configured(more: str = "", *, n8n: str = "", url: str = "") -> ConnectionRegistry:
        toml = yard.toml(url=url, more=f'editor = "https://n8n.example.com"\n{n8n}')
        (tmp_path / "unstall.toml").write_text(f'[state]\nurl = "{state_store.url}"\n{toml}\n{more}')
        monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
        registry.reset()
        windows.forget()
        return registry.registry()

    yield configured
    registry.reset()


def watched(here: ConnectionRegistry) -> None:
    """Half a minute ago the leader looked too."""
    ComparisonScanner(here, lambda: None).run(now_ms() - 31_000)


def shell(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def test_what_the_leader_finds_reaches_the_inbox_and_its_counts(
    yard: Yard, stores: Callable[[], ConnectionRegistry]
) -> None:
    lost = yard.execution("running", ago=MINUTES)
    here = stores()
    watched(here)
    ComparisonScanner(here, lambda: None).run(now_ms())
    snapshot = one_off_snapshot.take_snapshot(here)
    inbox = OrphanWatch(here, lambda: snapshot).run(now_ms())
    (line,) = inbox.rows
    assert (line.verdict.kind, line.execution, line.name) == (VerdictKind.N8N, lost, "Invoices")
    assert inbox.people == 1


def test_while_the_database_is_away_nothing_listed_is_no_all_clear_and_an_alert_says_so(
    yard: Yard, stores: Callable[[], ConnectionRegistry]
) -> None:
    yard.execution("running", ago=MINUTES)
    here = stores()
    watched(here)
    ComparisonScanner(here, lambda: None).run(now_ms())
    (lost,) = n8n_alerts(here).findings
    snapshot = one_off_snapshot.take_snapshot(here)
    yard.place.server.stop()
    try:
        ComparisonScanner(here, lambda: None).run(now_ms())
    finally:
        yard.place.server.start()
    inbox = OrphanWatch(here, lambda: snapshot).run(now_ms())
    assert [fault.startswith("The jobs and executions of n8n could not be compared: ") for fault in inbox.faults] == [
        True
    ]
    look = n8n_alerts(here)
    (away,) = look.findings
    assert (away.key, away.link) == ("main/n8n", "/stuck/n8n")
    assert away.words.startswith("The jobs and executions of n8n cannot be compared: ")
    assert (look.knows(AlertKind.N8N, away.key), look.knows(AlertKind.N8N, lost.key)) == (True, False)


def n8n_alerts(here: ConnectionRegistry) -> AlertCheck:
    found = AlertDetectors(here, lambda: None).look(now_ms())
    return replace(found, findings=tuple(one for one in found.findings if one.kind is AlertKind.N8N))


def test_each_kind_of_mismatch_is_an_alert(yard: Yard, stores: Callable[[], ConnectionRegistry]) -> None:
    here = stores()
    assert AlertKind.N8N not in n8n_alerts(here).known  # nobody has looked
    yard.execution("running", ago=MINUTES)
    yard.execution("running", ago=MINUTES)
    watched(here)
    ComparisonScanner(here, lambda: None).run(now_ms())
    look = n8n_alerts(here)
    (alert,) = look.findings
    assert (alert.key, alert.size, alert.link) == ("main/n8n/no~20job", 2, "/stuck/n8n?mismatch=no+job&n8n=n8n")
    assert alert.words.startswith("n8n, no job: 2 executions. The execution is unfinished")
    assert look.knows(AlertKind.N8N, alert.key)


def test_a_new_leader_goes_on_where_the_last_one_was(yard: Yard, stores: Callable[[], ConnectionRegistry]) -> None:
    """Of a deleted execution neither store says since when: the first look counts, whoever took it."""
    yard.delete(yard.begin(ago=MINUTES).execution)
    here, now = stores(), now_ms()
    (first,) = ComparisonScanner(here, lambda: None).run(now)
    (second,) = ComparisonScanner(here, lambda: None).run(now + 31_000)
    assert (first.mismatches, second.counts) == (0, {MismatchKind.DELETED: 1})


def test_without_leave_nothing_is_published(yard: Yard, stores: Callable[[], ConnectionRegistry]) -> None:
    yard.execution("running", ago=MINUTES)
    here = stores()
    ComparisonScanner(here, lambda: None, lambda: False).run(now_ms())
    assert comparison_store.fetch(here.state()) == ()


def test_the_processes_of_n8n_are_published_and_a_new_leader_knows_them(
    yard: Yard, stores: Callable[[], ConnectionRegistry]
) -> None:
    """By its registry; of one that the last leader saw and this one does not, it is told how it ended."""
    client = yard.store.client
    register(client, "m", "main")
    register(client, "w")
    here, now = stores(), now_ms()
    ComparisonScanner(here, lambda: None).run(now)
    client.delete(f"{HEAD}w")
    ComparisonScanner(here, lambda: None).run(now + 30_000)
    known = instance_store.fetch(here.state())["n8n"]
    assert set(known.here) == {"m"}
    assert [(one.instance.host, one.ending.value) for one in known.gone] == [("worker-w", "died")]
    assert instance_store.version("n8n") == (2, 41, 1)
    (table,) = json.loads(shell("n8n", "--json"))["n8n"]
    assert [(one["host"], one["ending"]) for one in table["instances"]] == [("main-m", None), ("worker-w", "died")]
    assert "Processes: n8n 2.41.1: 1 main." in shell("n8n")


def test_the_doctor_says_which_n8n_it_is_and_who_is_missing(
    yard: Yard, stores: Callable[[], ConnectionRegistry]
) -> None:
    here = stores()
    assert not any("main" in one.says for one in checkup_n8n.n8n(here))
    register(yard.store.client, "w", beat=40)
    register(yard.store.client, "v")
    told = {one.says: one.level for one in checkup_n8n.n8n(here)}
    assert told["n8n 2.41.1: 2 workers."] is DoctorLevel.GOOD
    assert told["The worker worker-w has sent no heartbeat for 40 s."] is DoctorLevel.WARNING
    assert told["No main process is alive: nothing is triggered, and what waits is not resumed."] is DoctorLevel.WARNING


def test_it_is_in_the_plans_only_where_an_n8n_is_configured(
    yard: Yard, stores: Callable[[], ConnectionRegistry]
) -> None:
    here = stores("[intervals]\nn8n = 7\n")
    leading = leader_plan(here.config, here, LeaderToken(1, lambda: True), OtherConsoles(here, "ours", "host", 1, 0))
    for made in (leading, reader_plan(here.config, here, lambda: True)):
        assert [entry.every for entry in made.entries if entry.name == "n8n"] == [7.0]
        made.close()
    bare = ConnectionRegistry(load({"UNSTALL_REDIS_URL": yard.store.url}))
    made = reader_plan(bare.config, bare, lambda: True)
    assert "n8n" not in [entry.name for entry in made.entries]
    made.close()
    bare.close()


def test_scripts_get_json(yard: Yard, stores: Callable[[], ConnectionRegistry]) -> None:
    lost, kept = yard.execution("running", ago=MINUTES), yard.begin(ago=MINUTES)
    watched(stores())
    (table,) = json.loads(shell("n8n", "--json"))["n8n"]
    assert (table["fault"], table["counts"], table["jobs"]) == (None, {"no job": 1}, 1)
    assert [row["execution"] for row in table["mismatches"]] == [lost]
    assert table["mismatches"][0]["repair"] == "mark crashed"
    assert [(row["execution"], row["job"], row["state"]) for row in table["matching"]] == [
        (kept.execution, kept.job, "waiting")
    ]
    (few,) = json.loads(shell("n8n", "--json", "--mismatches"))["n8n"]
    assert "matching" not in few


def test_people_get_a_paragraph_a_mismatch(yard: Yard, stores: Callable[[], ConnectionRegistry]) -> None:
    yard.execution("running", ago=MINUTES)
    watched(stores())
    summary, _, head, why, fate, repair = shell("n8n").splitlines()
    assert summary == ("n8n (2.1 or later), bull:jobs: 0 jobs, 1 unfinished executions: 1 no job.")
    assert head.startswith("no job  execution 1 running, no job  Invoices  for 3")
    assert why.strip().startswith("why      Execution 1 is running since 4 min.")
    assert "n8n marks it crashed" in fate
    assert repair.split() == ["repair", "mark", "crashed"]


def test_where_no_scheduler_runs_it_looks_twice_when_told(
    yard: Yard, stores: Callable[[], ConnectionRegistry], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = yard.execution("running", ago=MINUTES)
    stores()
    (once,) = json.loads(shell("n8n", "--json"))["n8n"]
    assert (once["mismatches"], once["fresh"]) == ([], 1)
    ahead = [0.0]
    monkeypatch.setattr(command.time, "sleep", ahead.append)
    monkeypatch.setattr(command.shared_clock, "now", lambda: int((clock() + sum(ahead)) * 1000))
    (twice,) = json.loads(shell("n8n", "--json", "--wait"))["n8n"]
    assert [row["execution"] for row in twice["mismatches"]] == [lost]
    assert 30.0 in ahead


def test_a_database_that_is_away_is_an_exit_status(yard: Yard, stores: Callable[[], ConnectionRegistry]) -> None:
    stores()
    yard.place.server.stop()
    try:
        with pytest.raises(CommandError, match="n8n cannot be compared") as caught:
            shell("n8n", "--json")
    finally:
        yard.place.server.start()
    assert caught.value.returncode == 4


def test_without_an_n8n_it_is_a_wrong_call(monkeypatch: pytest.MonkeyPatch, valkey: Store, tmp_path: Path) -> None:
    (tmp_path / "empty.toml").write_text("")
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "empty.toml"))
    monkeypatch.setenv("UNSTALL_REDIS_URL", valkey.url)
    registry.reset()
    with pytest.raises(CommandError, match="No n8n is configured") as caught:
        shell("n8n")
    registry.reset()
    assert caught.value.returncode == 2


def test_orphans_in_the_shell_name_the_execution(yard: Yard, stores: Callable[[], ConnectionRegistry]) -> None:
    lost = yard.execution("running", ago=MINUTES)
    here = stores()
    watched(here)
    ComparisonScanner(here, lambda: None).run(now_ms())
    (line,) = json.loads(shell("orphans", "--json"))["orphans"]
    assert (line["verdict"], line["job"], line["execution"]) == ("n8n", None, lost)
    assert f"n8n  main/bull:jobs execution {lost}  Invoices" in shell("orphans")


def test_orphans_in_the_shell_say_what_could_not_be_compared(
    yard: Yard, stores: Callable[[], ConnectionRegistry]
) -> None:
    stores()
    told = shell("orphans")
    assert "nothing is stuck in what could be checked." in told
    assert told.endswith("The jobs and executions of n8n have not been compared yet.\n")


def test_the_doctor_knows_the_tables_and_the_rights(yard: Yard, stores: Callable[[], ConnectionRegistry]) -> None:
    stores()
    assert "Its tables are those of n8n 2.1 or later; marking a row is possible." in found("n8n n8n", "ok")
    yard.run("ALTER TABLE {} ADD COLUMN mood text")
    assert "have the column mood" in found("n8n n8n", "warning")
    yard.run('ALTER TABLE {} DROP COLUMN "waitTill"')
    assert "has no column waitTill" in found("n8n n8n", "wrong")
    yard.place.server.stop()
    try:
        registry.reset()
        assert found("n8n n8n", "wrong")
    finally:
        yard.place.server.start()


def test_the_doctor_says_what_a_rescue_lacks(
    yard: Yard, stores: Callable[..., ConnectionRegistry], postgresql: Postgresql
) -> None:
    stores()
    assert "cannot be rescued from here. No API key of n8n" in found("n8n n8n", "ok")
    key = 'api_key = "of the tests"'
    stores(n8n=key)
    assert "can be rescued" in found("n8n n8n", "ok")
    postgresql.run("CREATE ROLE reader LOGIN")
    try:
        postgresql.run("GRANT USAGE ON SCHEMA public TO reader")
        postgresql.run("GRANT SELECT ON execution_entity, workflow_entity TO reader")
        stores(n8n=key, url=postgresql.url.replace("unstall@", "reader@"))
        assert "Executions at risk are not copied" in found("n8n n8n", "warning")
        postgresql.run("GRANT SELECT, UPDATE ON execution_entity TO reader")
        postgresql.run("GRANT SELECT ON execution_data TO reader")
        stores(n8n=key, url=postgresql.url.replace("unstall@", "reader@"))
        assert "GRANT UPDATE (data)" in found("n8n n8n", "warning")
    finally:
        registry.reset()
        postgresql.run("DROP OWNED BY reader")
        postgresql.run("DROP ROLE reader")


def found(about: str, level: str) -> str:
    return "\n".join(one.says for one in doctor_runner.examine() if one.about == about and one.level.value == level)


def test_a_jobs_page_has_its_execution_as_it_stands(yard: Yard, stores: Callable[[], ConnectionRegistry]) -> None:
    run = yard.begin(ago=MINUTES)
    here = stores()
    job = here.config.n8n[0].queue.job(run.job)
    data = json.dumps({"executionId": run.execution, "workflowId": "wfInvoices000001"})
    told: Any = job_execution.execution_of_job(job, data)
    assert (told.id, told.title, told.fault, told.execution.status.value) == (run.execution, "Invoices", "", "new")
    yard.delete(run.execution)
    windows.forget()
    gone: Any = job_execution.execution_of_job(job, data)
    assert (gone.execution, gone.title) == (None, "Invoices")
