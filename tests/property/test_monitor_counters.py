"""Whatever the counters of a machine do, its CPU stays within 0 and 100 percent, and true where it can be known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recovery.monitor.cgroups import Quota
from recovery.monitor.cpu_counters import CpuCounters

TICK = 0.01  # seconds: the grain of the kernel's counters
seconds = st.floats(0, 1e9)
kinds = st.fixed_dictionaries(dict.fromkeys(("user", "system", "idle", "iowait", "steal"), seconds))
anything = st.builds(
    CpuCounters,
    st.floats(0, 1e6),
    st.dictionaries(st.sampled_from([f"cpu{n}" for n in range(8)]), kinds),
    st.none() | st.builds(Quota, st.sampled_from(["a", "b"]), st.floats(0.01, 300), seconds),
)
# The busy share of each of 1 to 256 cores.
loads = st.builds(
    lambda some, times: some * times, st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(1, 32)
)
BEFORE = 0.3  # the share of every core until the first look


@given(anything, anything)
def test_any_two_looks_give_a_share_or_nothing(before: CpuCounters, after: CpuCounters) -> None:
    shares = after.since(before)
    if shares is not None:
        assert 0 <= shares.raw <= 100
        assert shares.host is None or 0 <= shares.host <= 100


@given(loads, st.floats(1, 20), st.floats(0, 1e6))
def test_the_share_is_that_of_all_cores(busy: list[float], elapsed: float, uptime: float) -> None:
    shares = _ran(busy, elapsed, uptime).since(_ran([BEFORE] * len(busy), uptime, 0.0))
    assert shares is not None
    assert abs(shares.raw - 100 * sum(busy) / len(busy)) < 100 * 4 * TICK / elapsed


@given(loads, st.floats(1, 20), st.integers(0, 8), st.floats(0, 1e7))
def test_a_core_that_is_plugged_in_or_jumps_by_years_is_no_spike(
    busy: list[float], elapsed: float, plugged: int, past: float
) -> None:
    before, after = _ran([BEFORE] * len(busy), 100.0, 0.0), _ran(busy, elapsed, 100.0)
    strange = {f"new{n}": {"user": past + elapsed, "idle": 0.0} for n in range(plugged)}
    jumped = {"jump": {"user": past + 1e5, "idle": 5.0}}
    shares = CpuCounters(after.at, {**after.cores, **strange, **jumped}).since(
        CpuCounters(before.at, {**before.cores, "jump": {"user": past, "idle": 5.0}})
    )
    assert shares is not None
    assert abs(shares.raw - 100 * sum(busy) / len(busy)) < 100 * 4 * TICK / elapsed


@given(st.floats(0.01, 8), st.floats(0, 1), st.floats(0.01, 8), st.floats(0.5, 20))
def test_a_quota_s_share_is_of_what_it_allows_now(before: float, busy: float, now: float, elapsed: float) -> None:
    """Also when the quota was changed between two looks."""
    earlier, later = _ran([BEFORE] * 16, 100.0, 0.0), _ran([0.5] * 16, elapsed, 100.0)
    first = CpuCounters(earlier.at, earlier.cores, Quota("g", before, 5.0))
    shares = CpuCounters(later.at, later.cores, Quota("g", now, 5.0 + busy * now * elapsed)).since(first)
    assert shares is not None
    assert abs(shares.raw - 100 * busy) < 0.1
    assert shares.host is not None


def test_counters_that_cannot_be_compared_say_nothing() -> None:
    before, after = _ran([BEFORE], 100.0, 0.0), _ran([0.5], 5.0, 100.0)
    assert before.since(after) is None  # the clock, and the counters, went back
    assert after.since(after) is None
    for quota in (None, Quota("other", 0.5, 1.0), Quota("g", 0.5, 9.0)):
        assert (
            CpuCounters(after.at, after.cores, Quota("g", 0.5, 2.0)).since(CpuCounters(100.0, before.cores, quota))
            is None
        )


def test_a_quota_of_more_than_there_is_is_none() -> None:
    before, after = _ran([BEFORE, BEFORE], 100.0, 0.0), _ran([1.0, 0.0], 5.0, 100.0)
    shares = CpuCounters(after.at, after.cores, Quota("g", 64.0, 0.0)).since(before)
    assert shares is not None
    assert round(shares.raw) == 50


def _ran(busy: list[float], elapsed: float, uptime: float) -> CpuCounters:
    """Counters after so long at these loads, in ticks."""
    cores = {}
    for number, share in enumerate(busy):
        user = _ticks(BEFORE * uptime) + _ticks(share * elapsed)
        cores[f"cpu{number}"] = {"user": user, "idle": _ticks((1 - BEFORE) * uptime) + _ticks((1 - share) * elapsed)}
    return CpuCounters(uptime + elapsed, cores)


def _ticks(value: float) -> float:
    return round(value / TICK) * TICK
