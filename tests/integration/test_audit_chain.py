"""The audit's chain: on SQLite and PostgreSQL, with several processes, and with somebody who tampers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.actions import audit
from recovery.domain.acting import Actor
from recovery.domain.refs import QueueRef
from recovery.models import AuditEntry, AuditHead
from recovery.reads import audit as book
from recovery.reads.audit import Head, verify
from tests.furnished import KINDS
from tests.web_process import ROOT, environ_of

MAIL = QueueRef("main", "bull:mail")
ADA = Actor("person", "ada", "admin", "10.0.0.7", may_act=True, may_bulk=True)
EACH = 25

# Not `-c` of manage.py's shell: two of these start at once and append as fast as they can.
_APPENDS = f"""
import sys, django
django.setup()
from recovery.actions import audit
from recovery.domain.acting import Actor
for number in range({EACH}):
    audit.note(Actor("shell", sys.argv[1]), "sign in", str(number))
"""


@pytest.fixture
def five(db: None) -> list[AuditEntry]:
    for number in range(5):
        audit.note(ADA, "sign in", f"the {number}th")
    return list(AuditEntry.objects.order_by("number"))


# -- tampering


def alter(five: list[AuditEntry]) -> None:
    AuditEntry.objects.filter(number=3).update(reason="nothing happened")


def alter_well(five: list[AuditEntry]) -> None:
    """With a new hash, so that only the next entry tells."""
    AuditEntry.objects.filter(number=3).update(reason="nothing happened")
    AuditEntry.objects.filter(number=3).update(hash=book.plain(3).link.hash)


def delete(five: list[AuditEntry]) -> None:
    AuditEntry.objects.filter(number=3).delete()


def delete_first(five: list[AuditEntry]) -> None:
    AuditEntry.objects.filter(number=1).delete()


def insert_in_front(five: list[AuditEntry]) -> None:
    five[0].number = 0
    five[0].save(force_insert=True)


def insert_behind(five: list[AuditEntry]) -> None:
    five[4].number, five[4].previous = 6, five[4].hash
    five[4].save(force_insert=True)
    AuditEntry.objects.filter(number=6).update(hash=book.plain(6).link.hash)


def insert_between(five: list[AuditEntry]) -> None:
    """A forged one takes the place of #3; the others move on by one, and keep their hashes."""
    for number in (5, 4, 3):
        AuditEntry.objects.filter(number=number).update(number=number + 1)
    five[2].reason = "forged"
    five[2].save(force_insert=True)
    AuditEntry.objects.filter(number=3).update(hash=book.plain(3).link.hash)
    AuditHead.objects.update(number=6)


def reorder(five: list[AuditEntry]) -> None:
    for old, new in ((2, 99), (4, 2), (99, 4)):
        AuditEntry.objects.filter(number=old).update(number=new)


def truncate(five: list[AuditEntry]) -> None:
    AuditEntry.objects.filter(number__gt=3).delete()


def erase(five: list[AuditEntry]) -> None:
    AuditEntry.objects.all().delete()


@pytest.mark.parametrize(
    ("tamper", "number", "kind"),
    [
        (alter, 3, "altered"),
        (alter_well, 4, "inserted"),
        (delete, 3, "deleted"),
        (delete_first, 1, "deleted"),
        (insert_in_front, 0, "inserted"),
        (insert_behind, 6, "inserted"),
        (insert_between, 4, "moved"),
        (reorder, 2, "moved"),
        (truncate, 4, "truncated"),
        (erase, 1, "truncated"),
    ],
)
def test_tampering_is_found(
    five: list[AuditEntry], tamper: Callable[[list[AuditEntry]], None], number: int, kind: str
) -> None:
    assert verify().is_sound
    tamper(five)
    report = verify()
    assert (report.findings[0].number, report.findings[0].kind) == (number, kind)


def test_a_tail_that_was_cut_off_with_its_head_shows_against_an_exported_one(five: list[AuditEntry]) -> None:
    exported = Head.read(book.head().written())
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
        audit.note(ADA, "sign in", f"the other {number}th")
    assert verify().is_sound
    (finding,) = verify(exported).findings
    assert (finding.number, finding.kind) == (5, "altered")


def test_a_chain_that_grew_still_holds_its_exported_head(five: list[AuditEntry]) -> None:
    exported = book.head()
    audit.note(ADA, "sign in")
    report = verify(exported)
    assert (report.is_sound, report.checked, report.head) == (True, 6, book.head())


def test_what_is_no_head_is_said(db: None) -> None:
    with pytest.raises(book.NotAHead):
        Head.read('{"number": "x"}')


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
        subprocess.Popen([sys.executable, "-c", _APPENDS, name], cwd=ROOT, env=environ, stderr=subprocess.PIPE)
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
from recovery.actions import audit
from recovery.domain.acting import Act, Actor, Order, Outcome, Seen
from recovery.domain.jobs import State
from recovery.domain.refs import QueueRef, text
from recovery.reads import audit as book
ids = [text(b"\\xfe" * 3000)]
jobs = tuple(Seen(id, State.ACTIVE) for id in ids)
order = Order(Act.FAIL, QueueRef("main", text(b"\\xff")), Actor("shell", "me"), "why \\x00 \\ud800", jobs)
number = audit.write_intent(order, {"jobs": [{"job": ids[0]}]}, ids)
audit.write_outcome(number, order, {"jobs": []}, {ids[0]: Outcome.DONE})
wanted = book.Filter(queue=order.queue, job=ids[0], outcome="done", actor="me", act="fail", since=0)
(line,) = book.entries(wanted, cursor=str(number + 1)).lines
assert line.tally == {"done": 1} and line.outcome == number + 1
assert book.of_job(order.queue.job(ids[0])) == (line,)
assert [fate.id for fate in book.entry(number).jobs] == ids
assert "me" in book.actors()
"""
    environ = database | {"DJANGO_SETTINGS_MODULE": "dashboard.settings"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    _manage(database, "audit", "verify")


def _manage(environ: dict[str, str], *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
