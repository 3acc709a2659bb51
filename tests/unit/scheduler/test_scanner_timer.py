"""When a scanner's turn is, by a clock that the test sets."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.domain.scanners.types import ScannerKind
from recovery.models import ScanRun
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.scheduler import scanner_timer
from recovery.scheduler.scanner_timer import RunInterval, ScannerTimer

NOW = 1_795_000_000_000


class Bench:
    """A scanner that runs every ten seconds, the first time after two."""

    def __init__(
        self,
        patch: pytest.MonkeyPatch,
        rhythm: RunInterval,
        scan: ScannerKind = ScannerKind.STALE_CHECK,
        last: int | None = None,
    ) -> None:
        self.seconds = 100.0
        self.began: list[int | str] = []
        self.next_at: list[int | None] = []
        self.paused = ""
        self.orders: list[Any] = []
        self.takes = 0.0  # seconds that an ordered run goes on
        self.scan = scan
        self._last = LastScannerRun(last, last) if last else None
        patch.setattr(scanner_timer, "pause_reason", lambda _: self.paused)
        self.timed = ScannerTimer(self, rhythm, self, self, may=lambda: True, clock=lambda: self.seconds)  # type: ignore[arg-type] # a stand-in for turn, ledger and orders

    @property
    def now(self) -> int:
        return NOW + round((self.seconds - 100) * 1000)

    def due(self, now: int, next_at: int | None = None) -> None:
        self.began.append((now - NOW) // 1000)
        self.next_at.append(next_at)

    def ordered(self, row: Any, now: int, next_at: int | None = None) -> None:
        self.began.append(str(row))
        self.seconds += self.takes

    def last(self, scan: ScannerKind) -> LastScannerRun | None:
        return self._last

    def take(self, scan: ScannerKind) -> list[ScanRun]:
        orders, self.orders = self.orders, []
        return orders

    def go_on(self, seconds: float, step: float = 0.5) -> None:
        for _ in range(round(seconds / step)):
            self.timed.tick(self.now)
            self.seconds += step


EVERY_TEN = RunInterval(10, first=2)


def test_it_runs_each_so_many_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, EVERY_TEN)
    bench.go_on(35)
    assert bench.began == [2, 12, 22, 32]
    assert bench.next_at[0] == NOW + 12_000


def test_what_was_missed_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine slept, or the run before took long."""
    bench = Bench(monkeypatch, EVERY_TEN)
    bench.go_on(5)
    bench.seconds += 3_600
    bench.go_on(5)
    assert len(bench.began) == 2


def test_a_new_term_goes_on_where_the_last_one_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedulers that are restarted often must not put it off for ever."""
    bench = Bench(monkeypatch, RunInterval(30, first=2), last=NOW - 20_000)
    bench.go_on(12)
    assert bench.began == [10]


def test_one_that_is_overdue_waits_for_the_start_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, EVERY_TEN, last=NOW - 3_600_000)
    bench.go_on(4)
    assert bench.began == [2]


def test_a_clock_that_was_set_back_delays_by_one_interval_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, EVERY_TEN, last=NOW + 3_600_000)
    bench.go_on(13)
    assert bench.began == [10]


def test_what_begins_anew_asks_for_no_past(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, RunInterval(10, first=2, anew=True), last=NOW - 1_000)
    bench.go_on(4)
    assert bench.began == [2]


def test_it_runs_at_once_when_it_is_called_and_then_has_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, EVERY_TEN)
    bench.go_on(5)
    bench.timed.call()
    bench.timed.call()
    bench.go_on(12)
    assert bench.began == [2, 5, 15]


def test_an_order_is_begun_at_the_next_tick_and_shifts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, EVERY_TEN)
    bench.go_on(5)
    bench.orders = ["ordered"]
    bench.go_on(8)
    assert bench.began == [2, "ordered", 12]


def test_a_run_behind_a_long_one_is_told_the_time_at_which_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, EVERY_TEN)
    bench.orders, bench.takes = ["long"], 30.0
    bench.timed.tick(bench.now)
    assert bench.began == ["long", 30]
    assert bench.next_at == [NOW + 40_000]


def test_a_paused_one_stands_still_and_takes_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, EVERY_TEN)
    bench.paused = "It is paused."
    bench.orders = ["look"]
    bench.go_on(25)
    bench.paused = ""
    bench.go_on(10)
    assert bench.began == ["look", 32]


def test_the_orphan_watch_looks_on_while_it_is_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, EVERY_TEN, ScannerKind.ORPHAN_WATCH)
    bench.paused = "It is paused."
    bench.go_on(5)
    assert bench.began == [2]


def test_long_intervals_drift_apart_a_little() -> None:
    pauses = {RunInterval(600).pause() for _ in range(50)}
    assert len(pauses) > 1
    assert min(pauses) >= 600
    assert max(pauses) <= 630
    assert RunInterval(5).pause() == 5
