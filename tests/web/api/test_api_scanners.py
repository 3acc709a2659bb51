"""/scanners of the API: how each is, what its runs did, and having one run now."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.accounts.token_scopes import TokenScope
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerFinding, ScannerKind, ScannerReport
from recovery.models import AuditEntry, ScannerPause, ScanRun
from recovery.scanners.runtime.run_recorder import EndedScannerRun, ScannerRunRecorder
from recovery.stores.registry import registry
from tests.support.machines import Machine, refused, told
from tests.support.stuck.watching import now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db

MAIL = QueueRef("main", "bull:mail")
SECRET = "password=hunter2hunter2"
WANTED = {"dry_run": True, "reason": "before the deploy"}


@pytest.fixture
def reader() -> Machine:
    return Machine(TokenScope.READ, name="reader")


@pytest.fixture
def machine() -> Machine:
    return Machine(TokenScope.BULK)


def ran(*finds: ScannerFinding, scan: ScannerKind = ScannerKind.STALE_CHECK, **facts: Any) -> int:
    ledger, now = ScannerRunRecorder(registry(), 7), now_ms()
    row = ledger.begin(scan, now)
    ledger.end(
        scan, row, EndedScannerRun(now, now + 40, ScannerReport(looked=9, finds=finds, **facts), next_at=now + 900_000)
    )
    return ScanRun.objects.latest("pk").pk


def find(id: str, outcome: Outcome | None = Outcome.DONE) -> ScannerFinding:
    act = Action.REQUEUE if outcome else None
    return ScannerFinding(MAIL.job(id), f"Orphan: {SECRET}", "Acts.", act, outcome, "", 12 if outcome else None)


def test_every_scanner_is_listed_with_its_last_run(desk: Desk, reader: Machine) -> None:
    number = ran(find("1"))
    ScannerPause.objects.create(scanner="auto-retry", by="ada", at=5, reason="provider down")
    found = {one["scanner"]: one for one in told(reader.get("scanners"))["scanners"]}
    assert list(found) == [scan.value for scan in ScannerKind]
    stale = found["stale-check"]
    assert (stale["looked"], stale["found"], stale["acted"], stale["late"]) == (9, 1, 1, False)
    assert stale["succeeded_at"] == stale["ended_at"]
    assert stale["next_at"] > stale["started_at"]
    assert found["auto-retry"]["paused"] == {"by": "ada", "at": 5, "reason": "provider down"}
    assert (found["prune"]["started_at"], found["prune"]["succeeded_at"]) == (None, None)
    (run,) = told(reader.get("scanners/stale-check/runs"))["runs"]
    assert run == told(reader.get(f"runs/{number}"))
    assert (run["status"], run["term"], run["actor"]) == ("ended", 7, None)


def test_what_a_run_did_to_which_job_is_told_without_secrets(desk: Desk, reader: Machine) -> None:
    number = ran(find("1"), find("2", None))
    first = told(reader.get(f"runs/{number}/finds", size=1))
    (one,) = first["finds"]
    assert (one["queue"]["id"], one["job"], one["act"], one["outcome"], one["audit"]) == (
        *("bull:mail", "1", "requeue", "done"),
        12,
    )
    assert "hunter2" not in one["what"]
    (other,) = told(reader.get(f"runs/{number}/finds", cursor=first["next"]))["finds"]
    assert (other["job"], other["act"], other["outcome"]) == ("2", None, None)


def test_a_run_is_ordered_and_waits_for_the_scheduler(desk: Desk, machine: Machine, reader: Machine) -> None:
    run = told(machine.post("scanners/stale-check/runs", WANTED | {"queue": "main/bull:mail"}), 202)
    assert (run["status"], run["dry_run"], run["actor"], run["queue"]["id"]) == (
        *("waiting", True),
        "machine",
        "bull:mail",
    )
    assert AuditEntry.objects.get().act == "scan"
    found = {one["scanner"]: one for one in told(reader.get("scanners"))["scanners"]}
    assert found["stale-check"]["under_way"]["id"] == run["id"]


@pytest.mark.parametrize("scanner", ["collect", "discover"])
def test_what_runs_anyway_is_not_ordered(desk: Desk, machine: Machine, scanner: str) -> None:
    refused(machine.post(f"scanners/{scanner}/runs", WANTED), 422, "bad_order")


def test_what_does_not_exist_is_missing(desk: Desk, reader: Machine) -> None:
    refused(reader.get("runs/404"), 404, "missing")
    refused(reader.get("runs/404/finds"), 404, "missing")
    assert reader.get("scanners/nonsense/runs").status_code in (404, 422)


def test_a_reader_orders_nothing(desk: Desk, reader: Machine) -> None:
    refused(reader.post("scanners/stale-check/runs", WANTED), 403, "scope_missing")
    refused(reader.post("sweeps", {"table": "app/imports"}), 403, "scope_missing")
    assert not ScanRun.objects.exists()


def test_a_worker_of_a_table_that_is_not_there_is_told_so(desk: Desk, machine: Machine) -> None:
    assert machine.post("sweeps", {"table": "nowhere/imports"}).status_code == 404
