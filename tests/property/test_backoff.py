"""Pauses keep their bounds, whatever the table says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.auto_retry.backoff import PAUSE_LIMIT, Backoff, chance

pauses = st.integers(0, PAUSE_LIMIT)
keys = st.binary(max_size=20).map(lambda raw: raw.decode("utf-8", "surrogateescape"))


@st.composite
def backoffs(draw: st.DrawFn) -> Backoff:
    first, longest = sorted((draw(pauses), draw(pauses)))
    return Backoff(draw(st.integers(0, 100)), first, draw(st.floats(1, 100)), longest, draw(st.floats(0, 1)))


@given(backoffs(), st.integers(0, 1_000), keys)
def test_no_pause_is_shorter_than_the_first_or_longer_than_the_longest(backoff: Backoff, made: int, key: str) -> None:
    assert backoff.first <= backoff.pause(made, key) <= backoff.longest


@given(backoffs(), st.integers(0, 100), keys)
def test_but_for_the_jitter_no_pause_is_shorter_than_the_one_before(backoff: Backoff, made: int, key: str) -> None:
    even = Backoff(backoff.attempts, backoff.first, backoff.factor, backoff.longest, 0.0)
    assert even.pause(made, key) <= even.pause(made + 1, key)


@given(keys, st.integers(0, 100))
def test_a_chance_is_a_chance(key: str, number: int) -> None:
    assert 0 <= chance(key, number) < 1
    assert chance(key, number) == chance(key, number)
