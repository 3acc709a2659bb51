"""The moving average of a server's CPU keeps its bounds, whatever is fed to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.servers.ewma import FALL, RISE, Ewma, add_sample

levels = st.floats(0, 100)
moments = st.floats(0, 1e9)


@given(levels, levels, moments, moments)
def test_the_average_lies_between_the_old_one_and_the_sample(old: float, new: float, at: float, later: float) -> None:
    value = Ewma(old, at).fed(new, later).value
    assert min(old, new) <= value <= max(old, new)


@given(st.lists(st.tuples(levels, st.floats(0, 1e6)), min_size=1))
def test_the_average_never_leaves_the_range_of_its_samples(steps: list[tuple[float, float]]) -> None:
    average, at = None, 0.0
    for sample, pause in steps:
        at += pause
        average = add_sample(average, sample, at)
    assert average is not None
    assert min(sample for sample, _ in steps) <= average.value <= max(sample for sample, _ in steps)


@given(levels, levels, st.floats(0.001, 600))
def test_it_rises_faster_than_it_falls(one: float, other: float, elapsed: float) -> None:
    low, high = sorted((one, other))
    risen = Ewma(low, 0).fed(high, elapsed).value - low
    fallen = high - Ewma(high, 0).fed(low, elapsed).value
    assert risen >= fallen - 1e-9


@given(levels, levels, st.lists(st.floats(0.1, 30), min_size=1, max_size=20))
def test_many_polls_of_a_steady_load_come_to_the_same_as_one(start: float, load: float, pauses: list[float]) -> None:
    stepped, at = Ewma(start, 0), 0.0
    for pause in pauses:
        at += pause
        stepped = stepped.fed(load, at)
    assert abs(stepped.value - Ewma(start, 0).fed(load, at).value) < 1e-6


def test_a_clock_that_went_back_changes_nothing() -> None:
    assert Ewma(40, 100).fed(90, 50) == Ewma(40, 100)


def test_the_time_constants_mean_what_they_say() -> None:
    assert round(Ewma(0, 0).fed(100, RISE).value) == 63
    assert round(Ewma(100, 0).fed(0, FALL).value) == 37
