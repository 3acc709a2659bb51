"""The audit: what is written, how it is read and filtered, and how it leaves."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models import F

from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Action, ActionCommand, Actor, ExpectedJob, Outcome
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.jobs import JobState
from recovery.errors import Missing, NotRecorded
from recovery.models import AuditEntry, AuditHead
from recovery.reads.audit import queries as book
from recovery.reads.audit.queries import AuditFilter, verify

MAIL = QueueRef("main", "bull:mail")
ADA = Actor("person", "ada", "admin", "10.0.0.7", may_act=True, may_bulk=True)


def order(
    act: Action = Action.REQUEUE, *ids: str, queue: QueueRef = MAIL, reason: str = "it hangs", actor: Actor = ADA
) -> ActionCommand:
    return ActionCommand(act, queue, actor, reason, tuple(ExpectedJob(id, JobState.ACTIVE) for id in ids))


def act(written: ActionCommand, outcome: Outcome = Outcome.DONE) -> int:
    """An intent and its outcome; the number of the intent."""
    ids = [seen.id for seen in written.jobs]
    before = [{"job": id, "before": {"state": "active"}} for id in ids]
    number = audit_log.write_intent(written, {"jobs": before}, ids)
    after = [{"job": id, "outcome": outcome, "why": "so it is", "after": {"state": "waiting"}} for id in ids]
    audit_log.write_outcome(number, written, {"jobs": after}, dict.fromkeys(ids or [""], outcome))
    return number


# -- writing


@pytest.mark.django_db
def test_numbers_have_no_gap_and_each_entry_follows_the_one_before() -> None:
    act(order(Action.REQUEUE, "1"))
    act(order(Action.FAIL, "2"))
    entries = list(AuditEntry.objects.order_by("number"))
    assert [entry.number for entry in entries] == [1, 2, 3, 4]
    assert [entry.previous for entry in entries] == ["", *(entry.hash for entry in entries[:3])]
    assert verify().is_sound


@pytest.mark.django_db
def test_any_name_and_any_reason_can_be_written() -> None:
    queue = QueueRef("main", decode_name(b"bull:\xff\x00\n"))
    number = act(order(Action.REQUEUE, decode_name(b"\xfe:\x00"), queue=queue, reason="nul \x00 and \ud800"))
    detail = book.entry(number)
    assert detail.line.queue == queue
    assert detail.line.job == decode_name(b"\xfe:\x00")
    assert [fate.id for fate in detail.jobs] == [decode_name(b"\xfe:\x00")]
    assert verify().is_sound


@pytest.mark.django_db
def test_a_note_is_undone_with_what_it_is_about() -> None:
    with transaction.atomic():
        audit_log.note(ADA, "role", "ben is an admin")
        transaction.set_rollback(True)
    audit_log.note(ADA, "role", "ben is an operator")
    assert [entry.reason for entry in AuditEntry.objects.all()] == ["ben is an operator"]
    assert verify().is_sound


@pytest.mark.django_db(transaction=True)
def test_a_full_disk_refuses_the_intent(monkeypatch: pytest.MonkeyPatch) -> None:
    audit_log.note(ADA, "log in")
    with connection.cursor() as cursor:
        pages = cursor.execute("PRAGMA page_count").fetchone()[0]
        cursor.execute(f"PRAGMA max_page_count = {pages}")
        try:
            with pytest.raises(NotRecorded, match="nothing was changed"):
                audit_log.write_intent(order(Action.REQUEUE, "1"), {"much": "x" * 2_000_000}, ["1"])
        finally:
            cursor.execute("PRAGMA max_page_count = 1073741823")
    assert AuditEntry.objects.count() == 1
    assert act(order(Action.REQUEUE, "1")) == 2
    assert verify().is_sound


@pytest.mark.django_db
def test_a_head_that_lags_behind_lets_nobody_append() -> None:
    """Somebody put an entry behind the end: rather no act than a chain of two ends."""
    act(order(Action.REQUEUE, "1"))
    AuditHead.objects.update(number=F("number") - 1)
    with pytest.raises(NotRecorded):
        audit_log.write_intent(order(Action.REQUEUE, "2"), {}, ["2"])


# -- reading


@pytest.mark.django_db
def test_a_line_is_an_intent_with_what_came_of_it() -> None:
    number = act(order(Action.REQUEUE, "1", "2"))
    (line,) = book.entries().lines
    assert (line.number, line.act, line.outcome, dict(line.tally)) == (number, "requeue", number + 1, {"done": 2})
    assert (line.queue, line.actor, line.address, line.job) == (MAIL, "ada", "10.0.0.7", None)
    assert line.status(line.at) == "done"


@pytest.mark.django_db
def test_an_intent_without_an_outcome_is_under_way_and_then_unknown() -> None:
    number = audit_log.write_intent(
        order(Action.REQUEUE, "1"), {"jobs": [{"job": "1", "before": {"state": "active"}}]}, ["1"]
    )
    (line,) = book.entries(AuditFilter(outcome="unknown")).lines
    assert line.number == number
    assert line.status(line.at + 1) == "in progress"
    assert line.status(line.at + book.OPEN_MS) == "unknown"


@pytest.mark.django_db
def test_before_and_after_stand_side_by_side() -> None:
    number = act(order(Action.REQUEUE, "1"))
    for asked in (number, number + 1):
        (fate,) = book.entry(asked).jobs
        assert (fate.before, fate.after, fate.outcome, fate.why) == (
            {"state": "active"},
            {"state": "waiting"},
            "done",
            "so it is",
        )


@pytest.mark.django_db
def test_filters_find_what_they_name() -> None:
    one = act(order(Action.REQUEUE, "1"))
    other = act(
        order(Action.FAIL, "1", queue=QueueRef("main", "bull:other"), actor=Actor("shell", "root")), Outcome.REFUSED
    )
    note = audit_log.note(ADA, "log in")

    def found(**wanted: object) -> list[int]:
        return [line.number for line in book.entries(AuditFilter(**wanted)).lines]  # type: ignore[arg-type]

    assert found() == [note, other, one]
    assert found(actor="root") == [other]
    assert found(act="requeue") == [one]
    assert found(queue=MAIL) == [one]
    assert found(deployment="main") == [other, one]
    assert found(job="1") == [other, one]
    assert found(queue=MAIL, job="1") == [one]
    assert found(outcome="refused") == [other]
    at = AuditEntry.objects.get(number=other).at
    assert other in found(since=at)
    assert other not in found(until=at)
    assert [line.number for line in book.actions_on_job(MAIL.job("1"))] == [one]
    assert book.actions_on_job(MAIL.job("2")) == ()


@pytest.mark.django_db
def test_pages_follow_each_other_without_loss() -> None:
    numbers = [audit_log.note(ADA, "log in", str(number)) for number in range(7)]
    seen: list[int] = []
    cursor = ""
    while True:
        page = book.entries(cursor=cursor, size=3)
        seen += [line.number for line in page.lines]
        cursor = page.next
        if not cursor:
            break
    assert seen == numbers[::-1]


@pytest.mark.django_db
def test_a_page_of_lines_takes_three_queries(django_assert_num_queries: Callable[[int], object]) -> None:
    for number in range(10):
        act(order(Action.REQUEUE, str(number)))
    with django_assert_num_queries(3):  # type: ignore[attr-defined]
        book.entries()


@pytest.mark.django_db
def test_an_entry_that_is_not_there_is_missing() -> None:
    with pytest.raises(Missing):
        book.entry(404)


# -- export


@pytest.mark.django_db
def test_json_holds_the_chain_as_it_is() -> None:
    act(order(Action.REQUEUE, decode_name(b"\xff")))
    document = json.loads("".join(book.export("json")))
    assert [entry["number"] for entry in document] == [1, 2]
    assert document[-1]["hash"] == book.head().hash
    assert json.loads(document[0]["body"])["jobs"][0]["job"] == decode_name(b"\xff")


@pytest.mark.django_db
def test_nothing_is_an_empty_list() -> None:
    assert json.loads("".join(book.export("json"))) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "reason", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "  =1", "\u3000=1", "\uff1d1", "a;=1", "a; +1", ";-1"]
)
def test_a_spreadsheet_runs_nothing_of_it(reason: str) -> None:
    """Neither of one that parts cells at commas, nor of one that parts them at semicolons, quoted or not."""
    audit_log.note(Actor("person", "=cmd|' /C calc'!A0"), "log in", reason, {"name": "x;=1"})
    table = "".join(book.export("csv"))
    (row,) = csv.DictReader(io.StringIO(table))
    assert row["actor"].startswith("'=")
    for cell in (*row.values(), *table.split(";")):
        assert not cell.strip().startswith(("=", "+", "-", "@", "\uff1d"))


@pytest.mark.django_db
def test_an_export_never_holds_more_than_a_part(
    django_assert_num_queries: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recovery.reads.audit.chain_entries.PART", 2)
    for _ in range(5):
        audit_log.note(ADA, "log in")
    with django_assert_num_queries(4):  # type: ignore[attr-defined]
        assert len(list(book.export("csv"))) == 6


def test_a_database_that_is_gone_refuses_the_act(monkeypatch: pytest.MonkeyPatch, db: None) -> None:
    def gone(*_: object, **__: object) -> None:
        raise OperationalError("server closed the connection unexpectedly, host=10.0.0.9")

    monkeypatch.setattr(AuditHead.objects, "select_for_update", gone)
    with pytest.raises(NotRecorded) as caught:
        audit_log.write_intent(order(Action.REQUEUE, "1"), {}, ["1"])
    assert "10.0.0.9" not in str(caught.value)
