"""The audit's chain: on SQLite and PostgreSQL, with several processes, and with somebody who tampers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.test import override_settings

from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Actor
from recovery.domain.identifiers import QueueRef
from recovery.models import AuditEntry, AuditHead
from recovery.reads.audit import queries as book
from recovery.reads.audit.queries import AuditChainHead, verify
from tests.support.processes.processes import run, spawn, succeed
from tests.support.processes.web_process import ROOT, environ_of
from tests.support.stores.furnished import KINDS
from tests.support.stuck import tampering

MAIL = QueueRef("main", "bull:mail")
ADA = Actor("person", "ada", "admin", "10.0.0.7", may_act=True, may_bulk=True)
EACH = 25

# Not `-c` of manage.py's shell: two of these start at once and append as fast as they can.
_APPENDS = f"""
import sys, django
django.setup()
from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Actor
for number in range({EACH}):
    audit_log.note(Actor("shell", sys.argv[1]), "log in", str(number))
"""


# What the version before wrote: the same columns, and no signatures.
_OLD = """
import django
django.setup()
from dataclasses import astuple
from django.db import connection
from recovery.domain.audit.hash_chain import FIELDS, AuditChainLink as Link
previous = ""
with connection.cursor() as cursor:
    for number in (1, 2, 3):
        link = Link(number, 1, "note", None, "person", "ada", "admin", "", "log in", "", "", "", "{}", previous)
        previous, columns = link.hash, ", ".join([*FIELDS, "hash"])
        marks = ", ".join(["%s"] * (len(FIELDS) + 1))
        cursor.execute(f"INSERT INTO recovery_auditentry ({columns}) VALUES ({marks})", [*astuple(link), link.hash])
    cursor.execute("INSERT INTO recovery_audithead (id, number, hash) VALUES (1, 3, %s)", [previous])
"""
NEXT_KEY = "the-next-key-of-these-tests-" + "n" * 40


@pytest.fixture
def five(db: None) -> list[AuditEntry]:
    for number in range(5):
        audit_log.note(ADA, "log in", f"the {number}th")
    return list(AuditEntry.objects.order_by("number"))


# -- tampering


@pytest.fixture
def chain(db: None) -> None:
    tampering.chain()
    assert verify().is_sound


@pytest.mark.parametrize("way", tampering.WAYS)
def test_tampering_is_found(chain: None, way: str) -> None:
    done, kind = tampering.WAYS[way]
    assert tampering.first_finding(done) == kind


def test_tampering_is_found_in_either_database(database: dict[str, str]) -> None:
    code = "import django; django.setup(); from tests.support.stuck import tampering; tampering.main()"
    environ = database | {"DJANGO_SETTINGS_MODULE": "dashboard.settings"}
    done = run("-c", code, environ=environ, seconds=120)
    assert (done.stdout.strip(), done.stderr) == ("{}", "")


def test_a_chain_without_the_key_that_signed_it_is_not_believed(five: list[AuditEntry]) -> None:
    with override_settings(SECRET_KEY=NEXT_KEY):
        (finding,) = verify().findings
        assert (finding.number, finding.kind) == (0, "unknown key")
        assert "UNSTALL_SECRET_KEY_FALLBACKS" in finding.text


def test_a_key_that_changes_is_verified_by_the_former_one_until_the_audit_is_sealed_anew(
    five: list[AuditEntry], capsys: pytest.CaptureFixture[str]
) -> None:
    with override_settings(SECRET_KEY=NEXT_KEY, SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        audit_log.note(ADA, "log in", "under the next key")
        assert verify().is_sound
        call_command("audit", "reseal")
    with override_settings(SECRET_KEY=NEXT_KEY):
        report = verify()
        assert (report.is_sound, report.unsigned, report.checked) == (True, 6, 7)
        AuditEntry.objects.filter(number=2).update(reason="nothing happened")
        tampering.relink(2)
        assert not verify().is_sound


def test_a_key_that_is_lost_is_given_up_only_when_that_is_said(five: list[AuditEntry]) -> None:
    with override_settings(SECRET_KEY=NEXT_KEY):
        with pytest.raises(CommandError, match="unknown key"):
            call_command("audit", "reseal")
        call_command("audit", "reseal", "--without-former-key")
        assert verify().is_sound
        assert "lost keys" in book.load_entry(6).body


def test_what_is_not_whole_is_not_sealed_anew(five: list[AuditEntry]) -> None:
    AuditEntry.objects.filter(number=3).update(reason="nothing happened")
    for arguments in ((), ("--without-former-key",)):
        with pytest.raises(CommandError, match="#3 altered"):
            call_command("audit", "reseal", *arguments)
    assert AuditHead.objects.get().marked == 0


@pytest.mark.django_db(transaction=True)
def test_a_database_of_the_version_before_goes_on_verifying(database: dict[str, str]) -> None:
    """Its entries have no signature. Migrated, they are fixed by a signature of the last one's hash."""
    _manage(database, "migrate", "recovery", "0006")
    environ = database | {"DJANGO_SETTINGS_MODULE": "dashboard.settings"}
    succeed("-c", _OLD, environ=environ)
    _manage(database, "migrate")
    report = json.loads(_manage(database, "audit", "verify", "--json"))
    assert (report["is_sound"], report["checked"], report["unsigned"]) == (True, 3, 3)
    succeed("-c", _APPENDS, "one", environ=environ)
    report = json.loads(_manage(database, "audit", "verify", "--json"))
    assert (report["is_sound"], report["checked"], report["unsigned"]) == (True, 3 + EACH, 3)


def test_a_tail_that_was_cut_off_with_its_head_shows_against_an_exported_one(five: list[AuditEntry]) -> None:
    exported = AuditChainHead.read(book.head().written())
    AuditEntry.objects.filter(number__gt=3).delete()
    AuditHead.objects.update(number=3, hash=five[2].hash)
    assert verify().is_sound
    (finding,) = verify(exported).findings
    assert (finding.number, finding.kind) == (4, "truncated")


def test_a_chain_written_anew_shows_against_an_exported_head(five: list[AuditEntry]) -> None:
    exported = book.head()
    AuditEntry.objects.all().delete()
    AuditHead.objects.all().delete()
    for number in range(7):
        audit_log.note(ADA, "log in", f"the other {number}th")
    assert verify().is_sound
    (finding,) = verify(exported).findings
    assert (finding.number, finding.kind) == (5, "altered")


def test_a_chain_that_grew_still_holds_its_exported_head(five: list[AuditEntry]) -> None:
    exported = book.head()
    audit_log.note(ADA, "log in")
    report = verify(exported)
    assert (report.is_sound, report.checked, report.head) == (True, 6, book.head())


def test_what_is_no_head_is_said(db: None) -> None:
    with pytest.raises(book.NotAHead):
        AuditChainHead.read('{"number": "x"}')


# -- several processes


@pytest.fixture(params=KINDS)
def database(
    request: pytest.FixtureRequest, our_database: Callable[[str, Path], str], tmp_path: Path
) -> dict[str, str]:
    """The environment of processes that share one database with our tables."""
    return environ_of(tmp_path, {"DATABASE_URL": our_database(request.param, tmp_path)})


def test_two_processes_append_to_one_chain(database: dict[str, str]) -> None:
    environ = database | {"DJANGO_SETTINGS_MODULE": "dashboard.settings"}
    writers = [
        spawn([sys.executable, "-c", _APPENDS, name], directory=ROOT, environ=environ, stderr=subprocess.PIPE)
        for name in ("one", "other")
    ]
    for writer in writers:
        _, trouble = writer.communicate(timeout=120)
        assert writer.returncode == 0, trouble.decode()
    told = _manage(database, "audit", "verify", "--json")
    assert json.loads(told)["checked"] == 2 * EACH
    document = json.loads(_manage(database, "audit", "export"))
    assert {"one", "other"} <= {entry["actor"] for entry in document}


def test_names_of_any_bytes_are_written_and_found_in_both_databases(database: dict[str, str]) -> None:
    code = """
import django
django.setup()
from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Action, ActionCommand as Order, Actor, ExpectedJob, Outcome
from recovery.domain.jobs import JobState
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.reads.audit import queries as book
ids = [decode_name(b"\\xfe" * 3000)]
jobs = tuple(ExpectedJob(id, JobState.ACTIVE) for id in ids)
order = Order(Action.FAIL, QueueRef("main", decode_name(b"\\xff")), Actor("shell", "me"), "why \\x00 \\ud800", jobs)
number = audit_log.write_intent(order, {"jobs": [{"job": ids[0]}]}, ids)
audit_log.write_outcome(number, order, {"jobs": [{"job": ids[0], "outcome": "done"}]}, {ids[0]: Outcome.DONE})
wanted = book.AuditFilter(queue=order.queue, job=ids[0], outcome="done", actor="me", act="fail", since=0)
(line,) = book.entries(wanted, cursor=str(number + 1)).lines
assert line.tally == {"done": 1} and line.outcome == number + 1
assert book.actions_on_job(order.queue.job(ids[0])) == (line,)
assert [fate.id for fate in book.entry(number).jobs] == ids
assert "me" in book.actors()
"""
    environ = database | {"DJANGO_SETTINGS_MODULE": "dashboard.settings"}
    succeed("-c", code, environ=environ)
    _manage(database, "audit", "verify")


def _manage(environ: dict[str, str], *arguments: str) -> str:
    return succeed("manage.py", *arguments, environ=environ)
