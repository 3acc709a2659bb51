"""How long a scheduler trusts that it leads. Its clock stands still until the test moves it; no database."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest
from django.db import OperationalError

from recovery.scheduler import lease
from recovery.scheduler.lease import ANSWER_TIMEOUT, LOOK, MARGIN, RENEW, RETRY, TERM, LeaderLease
from recovery.scheduler.lease_holder import LeaseHolder
from recovery.scheduler.lease_row import LeaseGrant, LeaseRecord, LeaseRow

ME = LeaseHolder("here", 1, 0, "", "me")
OTHER = LeaseHolder("there", 2, 0, "", "other")


class Script(LeaseRow):
    """A row whose answers the test writes. `delay`: how long each takes."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.delay = 0.0
        self.is_away = False
        self.tenure = LeaseRecord("", 0, 0, 0, -1)
        self.asked: list[str] = []

    def take(self, holder: str, term: int, seen: LeaseRecord | None = None) -> LeaseGrant | None:
        self._answer("take")
        if holder == self.tenure.holder or self.tenure.left <= 0 or seen == self.tenure:
            epoch = self.tenure.epoch + (holder != self.tenure.holder)
            self.tenure = LeaseRecord(holder, epoch, 0, self.tenure.expires_at + term, term)
            return LeaseGrant(epoch, 0)
        return None

    def read(self) -> LeaseRecord:
        self._answer("read")
        return self.tenure

    def release(self, holder: str) -> None:
        self._answer("release")

    def _answer(self, what: str) -> None:
        self.asked.append(what)
        self._clock.now += self.delay
        if self.is_away:
            raise OperationalError("it is away")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease, "steady", clock)
    return clock


@pytest.fixture
def row(clock: Clock) -> Script:
    return Script(clock)


@pytest.fixture
def mine(row: Script) -> LeaderLease:
    return LeaderLease(row, ME)


def taken_by_another(row: Script, left: int = 9000) -> None:
    row.tenure = LeaseRecord(str(OTHER), row.tenure.epoch + 1, 0, 5, left)


def test_a_free_lease_is_taken_at_the_first_step(mine: LeaderLease) -> None:
    assert (mine.is_leader(), mine.epoch()) == (False, None)
    assert mine.step() == RENEW
    assert (mine.is_leader(), mine.epoch()) == (True, 1)


def test_trust_ends_a_second_before_the_term_counted_from_the_question(
    mine: LeaderLease, row: Script, clock: Clock
) -> None:
    began, row.delay = clock.now, 1.5
    mine.step()
    clock.now = began + TERM - MARGIN - 0.001
    assert mine.is_leader()
    clock.now = began + TERM - MARGIN
    assert not mine.is_leader()


def test_an_answer_that_took_the_whole_term_is_worth_nothing(mine: LeaderLease, row: Script) -> None:
    row.delay = TERM
    mine.step()
    assert not mine.is_leader()


def test_each_renewal_prolongs_the_trust_and_keeps_the_epoch(mine: LeaderLease, clock: Clock) -> None:
    for _ in range(5):
        assert mine.step() == RENEW
        clock.now += RENEW
    assert mine.epoch() == 1


def test_an_error_prolongs_nothing(mine: LeaderLease, row: Script, clock: Clock) -> None:
    mine.step()
    row.is_away = True
    clock.now += RENEW
    assert mine.step() == RETRY
    assert mine.is_leader()
    clock.now += TERM - MARGIN - RENEW
    assert not mine.is_leader()
    assert mine.is_blind


def test_one_lost_renewal_costs_nothing(mine: LeaderLease, row: Script, clock: Clock) -> None:
    mine.step()
    clock.now += RENEW
    row.is_away = True
    clock.now += mine.step()
    row.is_away = False
    mine.step()
    clock.now += TERM - MARGIN - 0.001
    assert mine.epoch() == 1


def test_whoever_hears_of_another_leader_stops_at_once(mine: LeaderLease, row: Script) -> None:
    mine.step()
    leader_token = mine.leader_token(1)
    taken_by_another(row)
    assert leader_token.holds()
    assert mine.step() == LOOK
    assert not leader_token.holds()
    assert mine.leader is not None
    assert mine.leader.holder == str(OTHER)
    assert not mine.is_blind


def test_a_mandate_of_an_earlier_epoch_holds_no_more_though_the_same_process_leads(
    mine: LeaderLease, row: Script
) -> None:
    mine.step()
    leader_token = mine.leader_token(1)
    taken_by_another(row)
    mine.step()
    row.tenure = replace(row.tenure, expires_at=0, left=0)
    mine.step()
    assert mine.epoch() == 3
    assert not leader_token.holds()
    assert mine.leader_token(3).holds()


def test_whoever_does_not_stand_asks_nothing_and_leads_nobody(mine: LeaderLease, row: Script) -> None:
    mine.step()
    mine.stand(False)
    asked = len(row.asked)
    assert mine.step() == LOOK
    assert (mine.is_leader(), len(row.asked)) == (False, asked)
    mine.stand(True)
    mine.step()
    assert mine.is_leader()


def test_one_who_follows_only_reads(mine: LeaderLease, row: Script) -> None:
    taken_by_another(row)
    for _ in range(3):
        mine.step()
    assert row.asked == ["read"] * 3


def test_a_row_that_nobody_renews_for_a_term_is_free_whatever_the_clock_of_the_database_says(
    mine: LeaderLease, row: Script, clock: Clock
) -> None:
    """Its clock was set back by an hour."""
    taken_by_another(row, left=3_600_000)
    mine.step()
    clock.now += TERM
    mine.step()
    assert not mine.is_leader()
    clock.now += LOOK
    mine.step()
    assert mine.is_leader()


def test_a_lease_that_was_seen_renewed_is_not_over_because_the_clock_of_the_database_jumps(
    mine: LeaderLease, row: Script, clock: Clock
) -> None:
    """By an hour ahead."""
    taken_by_another(row)
    mine.step()
    row.tenure = replace(row.tenure, left=9000 - 3_600_000)
    clock.now += LOOK
    mine.step()
    row.tenure = replace(row.tenure, expires_at=6, left=9000)  # its holder renews it
    clock.now += TERM - LOOK
    mine.step()
    assert not mine.is_leader()


def test_a_row_that_is_renewed_stays_taken(mine: LeaderLease, row: Script, clock: Clock) -> None:
    taken_by_another(row, left=3_600_000)
    for renewal in range(20):
        row.tenure = replace(row.tenure, expires_at=renewal)
        mine.step()
        clock.now += RENEW
    assert not mine.is_leader()


def test_a_database_that_is_silent_counts_as_away_before_it_fails(mine: LeaderLease, clock: Clock) -> None:
    assert not mine.is_blind
    clock.now += ANSWER_TIMEOUT + 0.001
    assert mine.is_blind
    mine.step()
    assert not mine.is_blind


def test_only_a_leader_releases(mine: LeaderLease, row: Script) -> None:
    mine.release()
    assert row.asked == []
    mine.step()
    mine.release()
    assert row.asked[-1] == "release"
    assert not mine.is_leader()


# -- holders


def test_a_holder_is_read_as_it_was_written() -> None:
    here = LeaseHolder.here()
    assert LeaseHolder.parse(str(here)) == here
    assert LeaseHolder.parse("") is None
    assert LeaseHolder.parse("of another version") is None


@pytest.mark.usefixtures("processes")
def test_a_live_process_is_not_dead_and_a_killed_one_is() -> None:
    here = LeaseHolder.here()
    assert not here.is_dead(here.place)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        there = replace(here, pid=child.pid, started=0)
        assert not there.is_dead(here.place)
        child.kill()
    assert there.is_dead(here.place)


def test_a_number_that_another_process_has_now_is_a_dead_holder() -> None:
    here = LeaseHolder.here()
    assert replace(here, started=here.started - 1).is_dead(here.place)


@pytest.mark.parametrize("place", ["", "another boot/pid:[1]"])
def test_nobody_is_dead_who_cannot_be_seen_from_here(place: str) -> None:
    here = LeaseHolder.here()
    assert not replace(here, pid=2**22 + 1, place=place).is_dead(here.place)
