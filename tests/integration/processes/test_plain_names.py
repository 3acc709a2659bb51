"""What an earlier version stored by other names is found by the present ones: rows are renamed, the audit stays."""

from __future__ import annotations

import json
from importlib import import_module

import pytest
from django.apps import apps
from django.test import Client

from dashboard.accounts import failed_logins
from dashboard.accounts.roles import UserRole
from recovery import config
from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Action, Actor
from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.types import ScannerMode
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.stuck.types import LossCause, VerdictKind
from recovery.models import Alert, AuditEntry, BulkRun, Incident, PolicyLayer, ScannerPause, ScanRun
from recovery.reads.audit import queries as book
from recovery.reads.audit.queries import AuditFilter
from recovery.reads.policies import queries as policies_queries
from recovery.reads.scanners import queries as scanners_queries
from recovery.scanners.orphan_watch import resolution
from tests.support.people import browser, person, text

pytestmark = pytest.mark.django_db

MAIL = QueueRef("main", "bull:mail")
ADA = Actor("person", "ada", "admin", "10.0.0.7")
ACTS = {
    "sign in": "log in",
    "sign out": "log out",
    "sign in failed": failed_logins.ACT,
    "let scanner go on": "resume scanner",
    "release brake": "release safety limit",
    "ledger not changed": "claim not changed",
    "relaunch": "retry-execution",
}


def migrate() -> None:
    import_module("recovery.migrations.0008_plain_names").rename(apps, None)


@pytest.mark.parametrize(
    ("was", "now"), [("held", VerdictKind.RUNNING), ("doomed", VerdictKind.WORKER_LOST), ("orphan", VerdictKind.ORPHAN)]
)
def test_verdicts_of_incidents_are_renamed(was: str, now: VerdictKind) -> None:
    Incident.objects.create(deployment="main", base="b", job="1", kind=was, cause="deployed over", opened_at=1)
    migrate()
    row = Incident.objects.get()
    assert (VerdictKind(row.kind), LossCause(row.cause)) == (now, LossCause.DEPLOYED)


def test_who_resolved_an_incident_is_renamed() -> None:
    Incident.objects.create(deployment="main", base="b", job="1", kind="orphan", opened_at=1, resolved_by="watchdog")
    migrate()
    assert Incident.objects.get().resolved_by == resolution.STALLED_CHECK


def test_open_alerts_are_renamed() -> None:
    for kind in ("poison", "brake", "gate"):
        Alert.objects.create(kind=kind, key="main", words="x", since=1, seen_at=1)
    migrate()
    assert sorted(Alert.objects.values_list("kind", flat=True)) == ["gate", "pause", "quarantine"]


def test_a_bulk_run_goes_on_as_the_renamed_action() -> None:
    BulkRun.objects.create(act="relaunch", deployment="main", base="n8n.executions", actor="{}", created_at=1)
    migrate()
    assert Action(BulkRun.objects.get().act) is Action.RETRY_EXECUTION


def test_runs_and_pauses_of_a_renamed_scanner_stay_its_own() -> None:
    ScanRun.objects.create(scanner="relaunch-failed", status="ended", wanted_at=1, started_at=1, ended_at=2)
    ScannerPause.objects.create(scanner="relaunch-failed", by="ada", at=1)
    migrate()
    assert ScanRun.objects.get().scanner == ScannerKind.AUTO_RETRY
    assert list(scanners_queries.pauses()) == [ScannerKind.AUTO_RETRY]


def test_an_edited_policy_keeps_what_it_allows() -> None:
    written = {
        "relaunch_failed": {"mode": "act", "most": 7},
        "stale_check": {"mode": "observe"},
        "idempotency": "refused twice",
    }
    PolicyLayer.objects.create(deployment="", base="", written=json.dumps(written), by="ada", at=1)
    migrate()
    found = policies_queries.PolicySnapshot.open(config.current()).of(MAIL)
    assert (found.withheld, found.policy.auto_retry.mode, found.policy.auto_retry.most) == ((), ScannerMode.ENABLED, 7)
    assert found.policy.stale_check.mode is ScannerMode.DRY_RUN


@pytest.mark.parametrize(
    "written", ["relaunch_failed {", '["relaunch_failed"]', '{"never": {"names": ["relaunch_failed"]}}']
)
def test_what_is_no_policy_of_that_scanner_is_left_as_it_is(written: str) -> None:
    PolicyLayer.objects.create(deployment="", base="", written=written, by="ada", at=1)
    migrate()
    assert PolicyLayer.objects.get().written == written


@pytest.mark.parametrize(("was", "now"), ACTS.items())
def test_an_entry_of_the_audit_is_not_rewritten_and_is_found_by_the_present_name(was: str, now: str) -> None:
    number = audit_log.note(ADA, was)
    assert audit_log.note(ADA, now) == number + 1
    migrate()
    assert AuditEntry.objects.get(number=number).act == was
    assert book.verify().is_sound
    assert [line.act for line in book.entries(AuditFilter(act=now)).lines] == [now, now]


def test_what_a_renamed_scanner_did_is_found_by_its_present_name() -> None:
    audit_log.note(Actor("scanner", "relaunch-failed"), "scan")
    audit_log.note(Actor("person", "relaunch-failed"), "scan")  # a person may be called anything
    assert [line.actor for line in book.entries().lines] == ["relaunch-failed", "auto-retry"]
    assert len(book.entries(AuditFilter(actor="auto-retry")).lines) == 1
    assert sorted(book.actors()) == ["auto-retry", "relaunch-failed"]


def test_what_was_typed_as_a_name_in_former_entries_is_not_for_viewers() -> None:
    number = audit_log.note(Actor("web", "not logged in", address="192.0.2.7"), "sign in failed", "as hunter2-Kf9")
    viewer: Client = browser(person(UserRole.VIEWER))
    for address in ("/audit", f"/audit/{number}"):
        assert "hunter2-Kf9" not in text(viewer, address)
    assert "hunter2-Kf9" in text(browser(person(UserRole.OPERATOR)), f"/audit/{number}")
