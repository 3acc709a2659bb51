"""The gate never flaps: spikes, dips, noise around a threshold, and samples that do not come."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.gate.state_machine import (
    CALM,
    FRESH_POLLS,
    GAP,
    Gate,
    GateSample,
    GateState,
    GateThresholds,
    fold,
    resume_gate,
)
from recovery.domain.servers.ewma import Ewma, add_sample

START, POLL = 1_800_000_000_000, 5_000
HALF_MINUTE = 30_000
TERMS = GateThresholds()
shares = st.floats(0, 100)


def samples(cpu: Iterable[float], *, poll: int = POLL, smooths: bool = True) -> list[GateSample]:
    """As a monitor makes them."""
    average: Ewma | None = None
    made = []
    for number, raw in enumerate(cpu):
        at = START + number * poll
        average = add_sample(average, raw, at / 1000)
        made.append(GateSample(at, at + 200, poll, raw, average.value if smooths else None))
    return made


def states(
    made: Iterable[GateSample], terms: GateThresholds = TERMS, gate: Gate | None = None
) -> list[tuple[int, GateState]]:
    """When the gate turned, and to what."""
    turns: list[tuple[int, GateState]] = []
    for sample in made:
        before = gate.state if gate else None
        gate = fold(gate, "eu-1", sample, terms, sample.seen_at)
        if gate.state is not before:
            turns.append((sample.seen_at, gate.state))
    return turns


def an_open(cpu: float = 20.0) -> Gate:
    gate = None
    for sample in samples([cpu] * CALM):
        gate = fold(gate, "eu-1", sample, TERMS, sample.seen_at)
    assert gate is not None
    assert gate.state is GateState.OPEN
    return gate


def after(gate: Gate, *cpu: float) -> Gate:
    """The gate after these samples, each with no average of its own."""
    for raw in cpu:
        assert gate.sample is not None
        at = gate.sample.sampled_at + POLL
        gate = fold(gate, "eu-1", GateSample(at, at + 200, POLL, raw), TERMS, at + 300)
    return gate


def test_after_a_clock_that_stepped_back_a_sample_says_nothing_of_now() -> None:
    gate = an_open()
    assert gate.sample is not None
    assert gate.state_at(gate.sample.seen_at, TERMS) is GateState.OPEN
    assert gate.state_at(gate.sample.seen_at - 1, TERMS) is GateState.UNKNOWN


@given(
    st.floats(GAP + 10, 99),
    st.floats(GAP, 40),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from((-1.0, -0.5, 0.5, 1.0)) | st.floats(-1, 1), min_size=20, max_size=100),
)
def test_noise_of_ten_percent_around_a_threshold_never_makes_it_flap(
    close_at: float, gap: float, is_lower: bool, smooths: bool, noise: list[float]
) -> None:
    """Whatever the noise does: not more than one change within 30 s, and once it has turned it stays."""
    terms = GateThresholds(close_at, max(0.0, close_at - gap))
    level = terms.open_at if is_lower else terms.close_at
    cpu = [min(100.0, max(0.0, level + 10 * one)) for one in noise]
    turns = [turn for turn in states(samples(cpu, smooths=smooths), terms) if turn[1] is not GateState.UNKNOWN]
    assert all(later - earlier >= HALF_MINUTE for (earlier, _), (later, _) in pairwise(turns[1:]))
    assert len(turns) <= 2


def test_white_noise_between_the_thresholds_hardly_ever_moves_it() -> None:
    """A day of samples at the levels that both thresholds are within reach of."""
    rng = random.Random(20261118)
    close = 0
    for level in range(72, 80):
        turns = states(samples(level + rng.uniform(-10, 10) for _ in range(2_000)))
        close += sum(later - earlier < HALF_MINUTE for (earlier, _), (later, _) in pairwise(turns[2:]))
    assert close == 0


@given(st.floats(0, 70, exclude_max=True), st.floats(80, 100, exclude_min=True))
def test_one_spike_closes_it_and_one_dip_does_not_open_it(low: float, high: float) -> None:
    closed = after(an_open(low), high)
    assert closed.state is GateState.CLOSED
    assert closed.since == closed.sample.seen_at  # type: ignore[union-attr]  # it has one
    dipped = after(closed, *[low] * (CALM - 1), high, low)
    assert (dipped.state, dipped.since) == (GateState.CLOSED, closed.since)
    assert after(closed, *[low] * CALM).state is GateState.OPEN


def test_what_counts_is_the_higher_of_now_and_the_average() -> None:
    gate = an_open()
    at = gate.sample.sampled_at + POLL  # type: ignore[union-attr]  # it has one
    assert fold(gate, "eu-1", GateSample(at, at, POLL, 5.0, 91.0), TERMS, at).state is GateState.CLOSED
    assert fold(gate, "eu-1", GateSample(at, at, POLL, 91.0, 5.0), TERMS, at).state is GateState.CLOSED


def test_a_server_that_was_never_seen_low_begins_closed() -> None:
    assert [state for _, state in states(samples([75.0]))] == [GateState.CLOSED]
    assert [state for _, state in states(samples([10.0] * CALM))] == [GateState.UNKNOWN, GateState.OPEN]


def test_without_a_fresh_sample_it_is_unknown_and_the_same_sample_twice_is_one() -> None:
    gate = an_open()
    assert gate.sample
    later = gate.sample.seen_at + FRESH_POLLS * POLL + 1
    assert gate.state_at(later, TERMS) is GateState.UNKNOWN
    assert fold(gate, "eu-1", gate.sample, TERMS, later).state is GateState.UNKNOWN
    assert fold(gate, "eu-1", replace(gate.sample, seen_at=later), TERMS, later).state is GateState.UNKNOWN
    closed = after(gate, 95.0, 10.0)
    for _ in range(CALM):
        assert closed.sample
        closed = fold(closed, "eu-1", closed.sample, TERMS, closed.sample.seen_at)
    assert (closed.state, closed.lows) == (GateState.CLOSED, 1)


def test_after_a_pause_it_does_not_go_on_where_it_was() -> None:
    gate = an_open()
    assert gate.sample
    silent = fold(gate, "eu-1", None, TERMS, gate.sample.seen_at)
    assert silent.state is GateState.UNKNOWN
    assert after(silent, 10.0).state is GateState.UNKNOWN
    assert after(silent, 75.0).state is GateState.CLOSED


def test_no_number_is_no_sample() -> None:
    gate = an_open()
    at = gate.sample.sampled_at + POLL  # type: ignore[union-attr]  # it has one
    assert fold(gate, "eu-1", GateSample(at, at, POLL), TERMS, at).state is GateState.UNKNOWN


def test_it_settles_until_a_sample_has_begun_after_the_admission_and_the_polls_are_over() -> None:
    gate = an_open()
    assert gate.sample
    let_in = gate.sample.seen_at + 1_000
    gate = gate.admitting(let_in)
    assert gate.state_at(let_in, TERMS) is GateState.SETTLING
    one = after(gate, 10.0)  # four seconds later; half of what it tells was before
    assert one.sample
    assert one.state_at(let_in + 2 * POLL, TERMS) is GateState.SETTLING
    two = after(one, 10.0)
    assert two.state_at(let_in + 2 * POLL - 1, TERMS) is GateState.SETTLING
    assert two.state_at(let_in + 2 * POLL, TERMS) is GateState.OPEN
    assert after(gate, 95.0).state_at(let_in + POLL, TERMS) is GateState.CLOSED


@pytest.mark.parametrize("gate", [an_open(), after(an_open(), 95.0), Gate("\udcff", GateState.UNKNOWN, 1)])
def test_a_gate_comes_back_as_it_was_written(gate: Gate) -> None:
    assert Gate.decode(gate.encode()) == gate


@given(st.binary(max_size=40))
def test_what_is_no_gate_is_none(packed: bytes) -> None:
    assert Gate.decode(packed) is None


def test_another_watchers_gate_is_taken_over_only_when_it_saw_more() -> None:
    own, theirs = an_open(), after(an_open(), 95.0)
    assert own.sample
    assert theirs.sample
    assert resume_gate(None, theirs, theirs.sample) == theirs
    assert resume_gate(own, theirs, theirs.sample) == theirs
    assert resume_gate(theirs, own, theirs.sample) == theirs
    assert resume_gate(own, theirs, own.sample) == own  # theirs is of before the clock stepped back
    elsewhere = replace(theirs, sample=replace(theirs.sample, seen_at=theirs.sample.seen_at - 3_600_000))
    assert resume_gate(own, elsewhere, theirs.sample) == theirs  # another machine's clock has no say
