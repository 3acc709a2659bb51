"""Runs of scanners: asked for, begun, written down, paused; and how they are shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import DatabaseError

from recovery.actions import scanner_control as actions
from recovery.domain.actions.types import Action, Actor, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerFinding, ScannerKind, ScannerReport, ScanStatus
from recovery.errors import BadOrder, DeploymentMissing, Forbidden, Missing, Unreachable
from recovery.models import AuditEntry, ScanFind, ScannerPause, ScanRun
from recovery.reads.scanners import last_runs
from recovery.reads.scanners import queries as reads
from recovery.scanners.runtime import run_recorder as ledgers
from recovery.scanners.runtime.run_recorder import ScannerRunRecorder
from recovery.scanners.runtime.scanner_runner import ScannerRunner
from recovery.scheduler.run_requests import RunRequests
from recovery.stores.registry import registry
from tests.support.acting import ADMIN, MAIL, OPERATOR, VIEWER, Bench
from tests.support.stores.stores import Store
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db

EPOCH = 7
ODD = QueueRef("main", "bull:\udcff\n")


class Scanner:
    """Comes to whatever the test says; an exception is raised."""

    def __init__(self, *comes_to: ScannerReport | Exception | None) -> None:
        self._comes_to = list(comes_to)
        self.asked: list[tuple[bool, QueueRef | None]] = []

    def __call__(self, now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport | None:
        self.asked.append((dry_run, queue))
        report = self._comes_to.pop(0) if self._comes_to else ScannerReport(looked=1)
        if isinstance(report, Exception):
            raise report
        return report


def turn(
    scanner: Scanner, scan: ScannerKind = ScannerKind.STALE_CHECK, ledger: ScannerRunRecorder | None = None
) -> ScannerRunner:
    return ScannerRunner(scan, scanner, ledger or ScannerRunRecorder(registry(), EPOCH))


def done(id: str = "1", queue: QueueRef = MAIL, outcome: Outcome | None = Outcome.DONE) -> ScannerFinding:
    act = Action.REQUEUE if outcome else None
    return ScannerFinding(queue.job(id), "Orphan: no lock.", "Acts.", act, outcome, "", 12 if outcome else None)


def pulse(scan: ScannerKind = ScannerKind.STALE_CHECK) -> last_runs.LastScannerRun:
    return last_runs.read(registry().state())[scan]


# -- asked for


def test_a_run_is_ordered_audited_and_done_once(bench: Bench) -> None:
    ordered = actions.order(ADMIN, ScannerKind.STALE_CHECK, False, MAIL, "  before the   deploy ")
    entry = AuditEntry.objects.get()
    assert (entry.act, entry.actor, entry.reason, entry.base) == ("scan", "ada", "before the deploy", "bull:mail")
    scanner = Scanner(ScannerReport(looked=3, finds=(done(),)))
    orders = RunRequests(ScannerRunRecorder(registry(), EPOCH))
    orders.look(now_ms())
    (row,) = orders.take(ScannerKind.STALE_CHECK)
    assert turn(scanner).ordered(row, now_ms()) is not None
    assert turn(scanner).ordered(row, now_ms()) is None, "another thread has begun it"
    assert scanner.asked == [(False, MAIL)]
    run = reads.run(ordered.pk)
    assert (run.status, run.queue, run.epoch, run.looked, run.found, run.acted) == ("ended", MAIL, EPOCH, 3, 1, 1)
    assert run.actor == ADMIN
    orders.look(now_ms())
    assert orders.take(ScannerKind.STALE_CHECK) == []


@pytest.mark.parametrize(("actor", "dry_run"), [(VIEWER, True), (OPERATOR, False)])
def test_looking_takes_the_right_to_act_and_acting_the_right_to_act_in_bulk(
    bench: Bench, actor: Actor, dry_run: bool
) -> None:
    with pytest.raises(Forbidden):
        actions.order(actor, ScannerKind.STALE_CHECK, dry_run, None, "now")
    assert not ScanRun.objects.exists()
    assert not AuditEntry.objects.exists()


def test_an_operator_may_have_it_look(bench: Bench) -> None:
    assert actions.order(OPERATOR, ScannerKind.STALE_CHECK, True, None, "now").dry_run


@pytest.mark.parametrize(
    ("scan", "queue", "reason", "error"),
    [
        (ScannerKind.COLLECT, None, "now", BadOrder),
        (ScannerKind.PRUNE, MAIL, "now", BadOrder),
        (ScannerKind.STALE_CHECK, None, "  ", BadOrder),
        (ScannerKind.STALE_CHECK, QueueRef("nowhere", "bull:mail"), "now", DeploymentMissing),
    ],
)
def test_what_makes_no_sense_is_no_order(
    bench: Bench, scan: ScannerKind, queue: QueueRef | None, reason: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        actions.order(ADMIN, scan, False, queue, reason)
    assert not ScanRun.objects.exists()


def test_not_more_wait_than_anybody_needs(bench: Bench) -> None:
    for _ in range(actions.WAITING_AT_ONCE):
        actions.order(ADMIN, ScannerKind.STALE_CHECK, True, None, "now")
    with pytest.raises(BadOrder, match="waiting to start"):
        actions.order(ADMIN, ScannerKind.STALE_CHECK, True, None, "now")


def test_what_was_asked_for_long_ago_is_not_begun(bench: Bench) -> None:
    """A scheduler that comes back after an hour must not act on what somebody wanted then."""
    old = actions.order(ADMIN, ScannerKind.STALE_CHECK, False, None, "now")
    ScanRun.objects.filter(pk=old.pk).update(wanted_at=now_ms() - 3_600_000)
    orders = RunRequests(ScannerRunRecorder(registry(), EPOCH))
    orders.look(now_ms())
    assert orders.take(ScannerKind.STALE_CHECK) == []
    assert (reads.run(old.pk).status, reads.run(old.pk).trouble) == (ScanStatus.FAILED, ledgers.NOBODY_CAME)


def test_a_run_that_its_scheduler_did_not_finish_is_told_so_by_the_next(bench: Bench) -> None:
    cut_off = ScanRun.objects.create(scanner="stale-check", status="running", epoch=EPOCH, wanted_at=1, started_at=1)
    by_hand = ScanRun.objects.create(scanner="stale-check", status="running", epoch=EPOCH + 1, wanted_at=1)
    RunRequests(ScannerRunRecorder(registry(), EPOCH + 1)).look(now_ms())
    assert reads.run(cut_off.pk).trouble == ledgers.CUT_OFF
    assert reads.run(by_hand.pk).status is ScanStatus.RUNNING


# -- paused


def test_a_pause_is_audited_and_ends(bench: Bench) -> None:
    assert actions.pause(ADMIN, ScannerKind.AUTO_RETRY, "the provider is down")
    assert not actions.pause(ADMIN, ScannerKind.AUTO_RETRY, "once more")
    card = reads.card(ScannerKind.AUTO_RETRY, now_ms())
    assert card.pause is not None
    assert (card.pause.by, card.pause.reason) == ("ada", "the provider is down")
    with pytest.raises(BadOrder, match="paused"):
        actions.order(ADMIN, ScannerKind.AUTO_RETRY, False, None, "now")
    assert actions.order(ADMIN, ScannerKind.AUTO_RETRY, True, None, "look").pk
    assert actions.resume(ADMIN, ScannerKind.AUTO_RETRY)
    assert not actions.resume(ADMIN, ScannerKind.AUTO_RETRY)
    told = AuditEntry.objects.order_by("number").values_list("act", flat=True)
    assert list(told) == ["pause scanner", "scan", "resume scanner"]


@pytest.mark.parametrize("actor", [VIEWER, OPERATOR])
def test_only_an_admin_pauses(bench: Bench, actor: Actor) -> None:
    with pytest.raises(Forbidden):
        actions.pause(actor, ScannerKind.STALE_CHECK, "now")
    ScannerPause.objects.create(scanner="stale-check", by="ada", at=1)
    with pytest.raises(Forbidden):
        actions.resume(actor, ScannerKind.STALE_CHECK)
    assert ScannerPause.objects.exists()


@pytest.mark.parametrize("scan", [ScannerKind.COLLECT, ScannerKind.DISCOVER])
def test_what_feeds_the_pages_is_not_paused(bench: Bench, scan: ScannerKind) -> None:
    with pytest.raises(BadOrder, match="out of date"):
        actions.pause(ADMIN, scan, "now")


# -- written down


def test_a_run_that_is_due_is_kept_with_what_it_did(bench: Bench) -> None:
    report = ScannerReport(
        5, (done("1", outcome=None), done("2"), done("3", ODD)), ("At most 2.",), ("main does not answer.",)
    )
    turn(Scanner(report)).due(now_ms(), now_ms() + 900_000)
    (run,) = reads.runs(ScannerKind.STALE_CHECK).rows
    assert (run.looked, run.found, run.acted, run.refused) == (5, 3, 2, 0)
    assert (run.holds, run.trouble, run.actor, run.status) == (("At most 2.",), "main does not answer.", None, "ended")
    rows = reads.finds(run.id).rows
    assert [(row.job.id, row.outcome) for row in rows] == [("2", "done"), ("3", "done"), ("1", "")]
    assert rows[1].job == ODD.job("3")
    assert pulse().run == run.id
    assert pulse().next_at


def test_a_frequent_scanner_is_kept_only_when_there_is_news(bench: Bench) -> None:
    quiet, acted = ScannerReport(looked=1), ScannerReport(1, (done(),))
    held, away = ScannerReport(1, holds=("It holds for 9 s more.",)), ScannerReport(faults=("main does not answer.",))
    later = ScannerReport(1, holds=("It holds for 4 s more.",))
    scanner = Scanner(quiet, acted, quiet, held, later, quiet, away, away, quiet, away)
    watch = turn(scanner, ScannerKind.ORPHAN_WATCH)
    kept = []
    for _ in range(10):
        watch.due(now_ms())
        kept.append(ScanRun.objects.count())
    assert kept == [0, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    assert [run.status for run in reads.runs().rows] == ["failed", "failed", "ended", "ended"]


def test_a_failure_is_recorded_and_the_next_run_goes_on(bench: Bench) -> None:
    scanner = Scanner(Unreachable("redis://h:6379", "refused"), ZeroDivisionError("ours"), ScannerReport(looked=1))
    one = turn(scanner)
    began = now_ms()
    for _ in range(3):
        one.due(now_ms())
    troubles = [(run.status.value, run.trouble) for run in reads.runs().rows]
    assert troubles == [
        ("ended", ""),
        ("failed", "ZeroDivisionError('ours')"),
        ("failed", "redis://h:6379: refused"),
    ]
    assert pulse().succeeded_at
    assert (pulse().succeeded_at or 0) >= began


def test_the_last_success_outlives_failures_and_restarts(bench: Bench) -> None:
    turn(Scanner(ScannerReport(looked=1))).due(now_ms())
    succeeded_at = pulse().succeeded_at
    another = turn(Scanner(Unreachable("redis://h", "refused")), ledger=ScannerRunRecorder(registry(), EPOCH + 1))
    another.due(now_ms() + 5)
    assert pulse().has_failed
    assert pulse().succeeded_at == succeeded_at
    card = reads.card(ScannerKind.STALE_CHECK, (succeeded_at or 0) + 3 * 900_000)
    assert card.is_late
    assert not reads.card(ScannerKind.STALE_CHECK, (succeeded_at or 0) + 900_000).is_late


def test_what_feeds_the_pages_waits_for_no_database(bench: Bench) -> None:
    turn(Scanner(Unreachable("redis://h", "refused")), ScannerKind.COLLECT).due(now_ms())
    assert not ScanRun.objects.exists()
    assert pulse(ScannerKind.COLLECT).trouble == "redis://h: refused"


def test_nothing_that_was_due_leaves_no_trace(bench: Bench) -> None:
    turn(Scanner(None), ScannerKind.DISCOVER).due(now_ms())
    assert last_runs.read(registry().state()) == {}


def test_very_many_finds_are_counted_and_the_first_are_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "FINDS", 3)
    finds = (*(done(str(number), outcome=None) for number in range(5)), done("acted"))
    turn(Scanner(ScannerReport(9, finds))).due(now_ms())
    (run,) = reads.runs().rows
    assert run.found == 6
    assert [row.job.id for row in reads.finds(run.id).rows] == ["acted", "0", "1"]


def test_a_database_that_takes_nothing_costs_no_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise DatabaseError("disk full")

    monkeypatch.setattr(ScanRun.objects, "create", refuse)
    scanner = Scanner(ScannerReport(1, (done(),)))
    assert turn(scanner, ScannerKind.ORPHAN_WATCH).due(now_ms()) is not None
    assert pulse(ScannerKind.ORPHAN_WATCH).acted == 1


def test_a_state_store_that_is_away_costs_the_last_runs_and_says_so(bench: Bench, state_store: Store) -> None:
    turn(Scanner(ScannerReport(1, (done(),)))).due(now_ms())
    state_store.pause()
    try:
        cards = reads.cards(now_ms())
    finally:
        state_store.resume()
    assert {card.pulse for card in cards} == {None}
    assert all("does not answer" in card.trouble for card in cards)
    last = next(card for card in cards if card.scan is ScannerKind.STALE_CHECK).last
    assert last is not None
    assert last.acted == 1


# -- read


def test_pages_of_runs_and_finds_lose_nothing(bench: Bench) -> None:
    scanner = Scanner(*(ScannerReport(1, tuple(done(str(number)) for number in range(5))) for _ in range(5)))
    one = turn(scanner)
    for _ in range(5):
        one.due(now_ms())
    first = reads.runs(ScannerKind.STALE_CHECK, size=2)
    second = reads.runs(ScannerKind.STALE_CHECK, cursor=first.next, size=2)
    third = reads.runs(ScannerKind.STALE_CHECK, cursor=second.next, size=2)
    assert third.next == ""
    ids = [run.id for page in (first, second, third) for run in page.rows]
    assert ids == sorted(ids, reverse=True)
    assert len(ids) == 5
    found, cursor = list[str](), ""
    while True:
        page = reads.finds(ids[0], cursor=cursor, size=2)
        found += [row.job.id for row in page.rows]
        cursor = page.next
        if not cursor:
            break
    assert found == list("01234")


def test_a_run_that_is_gone_is_missing(bench: Bench) -> None:
    with pytest.raises(Missing):
        reads.run(404)


def test_there_is_a_card_for_each_scanner_before_anything_ran(bench: Bench) -> None:
    cards = reads.cards(now_ms())
    assert [card.scan for card in cards] == list(ScannerKind)
    assert all(card.pulse is None and card.purpose and not card.is_late for card in cards)


def test_a_card_tells_what_is_under_way_and_what_was_last(bench: Bench) -> None:
    turn(Scanner(ScannerReport(1, (done(),)))).due(now_ms())
    waiting = actions.order(ADMIN, ScannerKind.STALE_CHECK, True, None, "look")
    card = reads.card(ScannerKind.STALE_CHECK, now_ms())
    assert card.open is not None
    assert card.open.id == waiting.pk
    assert card.last is not None
    assert card.last.acted == 1


def test_old_garbage_in_the_state_store_is_no_run(bench: Bench) -> None:
    registry().state().hset(
        "unstall:scanners", mapping={"collect": "{", "stale-check": '{"started_at": "x"}', "?": "1"}
    )
    assert last_runs.read(registry().state()) == {}
    assert ScanFind.objects.count() == 0
