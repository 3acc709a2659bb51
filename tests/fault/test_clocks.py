"""The wall clock of a scheduler's host jumps while it leads: snapshots go on, and the lease stays where it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from recovery.domain.scans import Scan
from recovery.reads import leading, pulses, snapshots
from tests import schedulers
from tests.schedulers import Process
from tests.stores import Store
from tests.waiting import until

PAUSE = 5.0  # seconds that a jump may stop anything for
pytestmark = [pytest.mark.timeout(120)]

# In the child every clock that may be set, as Python reads it, is as far off as a file says.
_OFF = """
import datetime, os, time
_file, _wall, _datetime = os.open(os.environ["CLOCK_OFF"], os.O_RDONLY), time.time, datetime.datetime

def _off():
    return float(os.pread(_file, 20, 0) or 0)

class _Kind(type(_datetime)):
    def __instancecheck__(self, one):
        return isinstance(one, _datetime)

class _Shifted(_datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz=None):
        return _datetime.now(tz) + datetime.timedelta(seconds=_off())

time.time = lambda: _wall() + _off()
datetime.datetime = _Shifted
"""


@pytest.fixture
def leader(tmp_path: Path, valkey: Store, state_store: Store) -> Iterator[tuple[Process, Callable[[int], None]]]:
    """It leads, with a clock that may be set: in seconds from the right time."""
    schedulers.furnish(tmp_path)
    off = tmp_path / "off"
    off.write_text("0")

    def jump(seconds: int) -> None:
        off.write_text(f"{seconds:<20}")  # into the file that the child has open

    flag, code, *rest = schedulers.script()
    environ = {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url, "CLOCK_OFF": str(off)}
    with ExitStack() as stack:
        process = Process(tmp_path, "scheduler", (flag, _OFF + code, *rest), environ)
        stack.callback(process.end)
        process.says("It leads")
        yield process, jump


def test_a_wall_clock_that_jumps_by_an_hour_stops_nothing(
    leader: tuple[Process, Callable[[int], None]], state_store: Store
) -> None:
    process, jump = leader
    until(lambda: snapshots.fetch(state_store.client), 20, "the first snapshot")
    until(lambda: Scan.ORPHAN_WATCH in pulses.read(state_store.client), 20, "the first look")
    epoch = _sign(state_store).epoch
    for seconds in (-3600, 3600, 0):
        jump(seconds)
        before, watched = _number(state_store), _watched(state_store)
        until(lambda before=before: _number(state_store) > before, PAUSE, f"a snapshot at {seconds:+} s")  # type: ignore[misc]
        until(lambda watched=watched: _watched(state_store) > watched, 3 * PAUSE, "a look")  # type: ignore[misc]
        taken = snapshots.fetch(state_store.client)
        assert taken is not None
        assert abs(taken.taken_at - time.time() * 1000) < 20_000
    assert _sign(state_store).epoch == epoch
    assert "is lost" not in process.log
    assert process.log.count("It leads") == 1


def _number(store: Store) -> int:
    found = snapshots.fetch(store.client)
    return found.number if found else 0


def _watched(store: Store) -> int:
    return pulses.read(store.client)[Scan.ORPHAN_WATCH].ended_at


def _sign(store: Store) -> leading.Sign:
    return until(lambda: leading.fetch(store.client), 10, "its sign of life")
