from __future__ import annotations

import pytest

from recovery.domain.time_units import age, elapsed


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (-5, "0 s"),
        (999, "0 s"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (3_599_999, "59 min"),
        (3_600_000, "1 h"),
        (12_000_000, "3 h 20 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_an_age_is_said_at_one_glance(ms: int, words: str) -> None:
    assert age(ms) == words


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0, "0 ms"),
        (320, "320 ms"),
        (3200, "3.2 s"),
        (41_000, "41 s"),
        (112_000, "1 min 52 s"),
        (3_660_000, "1 h 1 min"),
    ],
)
def test_a_short_run_is_said_finely(ms: int, words: str) -> None:
    assert elapsed(ms) == words
