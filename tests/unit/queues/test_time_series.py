"""Minutes, rings and buckets: pure arithmetic, by example."""

from __future__ import annotations

import pytest

from recovery.domain.queues.time_series import (
    HOURS,
    MINUTE,
    MINUTES,
    POINTS,
    TENS,
    UNKNOWN,
    FinishedRing,
    FinishedTally,
    FinishedWindow,
    by_minute,
    library_minutes,
    newest_first,
    total,
    trimmed,
)

NOW = 1_700_000_040_000  # 00:14:00 UTC of its day
M = NOW // MINUTE


def _minutes(points: list[int], **values: int) -> tuple[int | None, ...]:
    known = {"count": 6, "prev_ts": NOW - 255_000 + 255_000, "prev_count": 5, "now": NOW, "minutes": 6} | values
    return library_minutes(points, **known)


def test_the_library_s_list_starts_with_the_minute_before_the_open_one() -> None:
    # Six jobs at 0 s, 5 s, 15 s, 2 × 75 s and 255 s: the list that the real library wrote.
    start = (M - 10) * MINUTE + 50_000
    written = _minutes([0, 0, 2, 1, 2], prev_ts=start + 255_000, now=(M - 5) * MINUTE + 59_000, minutes=7)
    assert written == (0, 0, 2, 1, 2, None, None)


def test_the_open_minute_counts_once_it_is_closed() -> None:
    assert _minutes([4], prev_ts=NOW - 30_000, count=9, prev_count=6, minutes=3) == (3, 4, None)


def test_the_open_minute_is_left_out_while_it_is_open() -> None:
    assert _minutes([4, 1], prev_ts=NOW, count=9, prev_count=6, minutes=3) == (4, 1, None)


def test_minutes_after_the_last_job_are_idle_and_not_unknown() -> None:
    assert _minutes([7], prev_ts=NOW - 3 * MINUTE, count=9, prev_count=8, minutes=5) == (0, 0, 1, 7, None)


def test_minutes_before_the_list_are_unknown() -> None:
    assert _minutes([], prev_ts=NOW - MINUTE, minutes=4) == (1, None, None, None)


def test_a_worker_whose_clock_is_ahead_does_not_shift_the_minutes() -> None:
    assert _minutes([3, 2, 1], prev_ts=NOW + 2 * MINUTE, minutes=3) == (1, None, None)


def _packed(first: int, *tallies: FinishedTally) -> bytes:
    return b"".join(piece for _, piece in MINUTES.pieces(first, tallies))


@pytest.mark.parametrize("hours", HOURS)
def test_a_chart_has_at_most_240_points_and_covers_its_hours(hours: int) -> None:
    window = FinishedWindow.of(hours, NOW)
    assert window.size <= POINTS
    assert window.size * window.step == hours * 60
    assert window.end <= M < window.end + window.step


def test_a_week_is_made_of_whole_cells_of_ten_minutes() -> None:
    window = FinishedWindow.of(168, NOW)
    assert window.step % TENS.unit == 0
    assert window.start % TENS.unit == 0


def test_buckets_stay_put_while_time_goes_on() -> None:
    early, late = FinishedWindow.of(24, NOW), FinishedWindow.of(24, NOW + 7 * MINUTE)
    assert (late.start - early.start) % early.step == 0


def test_a_bucket_is_unknown_when_less_than_half_of_it_is_known() -> None:
    window = FinishedWindow(start=M, step=4, size=2)
    cells = {M: FinishedTally(1, 0), M + 4: FinishedTally(1, 0), M + 5: FinishedTally(2, 0), M + 7: FinishedTally(4, 1)}
    assert window.fold(cells) == [FinishedTally(None, None), FinishedTally(7, 1)]


def test_a_week_s_bucket_sums_cells_of_ten_minutes() -> None:
    window = FinishedWindow(start=M // 10 * 10, step=20, size=1)
    first = window.start // 10
    assert window.fold({first: FinishedTally(1, 2, 3), first + 1: FinishedTally(10, 20, 30)}, TENS.unit) == [
        FinishedTally(11, 22, 33)
    ]


def test_points_say_where_their_bucket_starts() -> None:
    points = FinishedWindow(start=M, step=3, size=2).points([FinishedTally(1, 2, 3), UNKNOWN])
    assert [(point.at_ms, point.completed) for point in points] == [(M * MINUTE, 1), ((M + 3) * MINUTE, None)]


def test_the_sum_of_nothing_known_is_unknown() -> None:
    assert total([UNKNOWN, UNKNOWN]) == UNKNOWN


def test_a_gap_is_filled_from_the_other_and_a_zero_is_no_gap() -> None:
    assert FinishedTally(0, None, 2).or_else(FinishedTally(9, 9, 9)) == FinishedTally(0, 9, 2)


def test_a_cell_of_an_earlier_round_is_ignored() -> None:
    old = _packed(M - MINUTES.cells, FinishedTally(5, 5, 5))
    assert MINUTES.offset(M) == MINUTES.offset(M - MINUTES.cells)
    assert MINUTES.read(old, M, M) == {}


def test_zero_bytes_are_no_cell() -> None:
    assert MINUTES.read(bytes(160), M - 10, M) == {}


def test_unknown_and_zero_survive_the_ring() -> None:
    raw = _packed(M, FinishedTally(0, None, 7), UNKNOWN)
    assert MINUTES.read(raw, M, M + 1) == {M: FinishedTally(0, None, 7), M + 1: UNKNOWN}


def test_a_torn_cell_is_left_out() -> None:
    assert MINUTES.read(_packed(M, FinishedTally(1, 1, 1))[:-3], M, M) == {}


def test_a_count_too_large_for_its_cell_stays_a_count() -> None:
    assert MINUTES.read(_packed(M, FinishedTally(2**40, 0, 0)), M, M)[M].completed == 2**32 - 2


def test_a_span_over_the_end_of_the_ring_is_read_in_two_parts() -> None:
    ring = FinishedRing(unit=1, cells=10)
    assert ring.spans(8, 11) == [(8 * 16, 159), (0, 31)]
    assert ring.spans(2, 3) == [(32, 63)]
    assert ring.spans(0, 99) == [(0, 159)]


def test_both_rings_of_a_queue_stay_below_forty_kilobytes() -> None:
    assert (MINUTES.cells + TENS.cells) * 16 <= 40_000


def test_columns_become_minutes_and_minutes_columns() -> None:
    cells = by_minute(NOW, (5, 4), (1,), ())
    assert cells == {M - 1: FinishedTally(5, 1, None), M - 2: FinishedTally(4, None, None)}
    assert [tally.completed for tally in newest_first(cells, NOW, 3)] == [5, 4, None]


def test_an_unknown_end_is_cut_off_and_a_gap_is_kept() -> None:
    assert trimmed([1, None, 0, None]) == (1, None, 0)
    assert trimmed([None, None]) == ()
