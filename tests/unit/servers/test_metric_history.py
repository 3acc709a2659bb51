"""Cells, rings, minutes and the points of a server's charts: pure arithmetic, by example."""

from __future__ import annotations

import pytest

from recovery.domain.servers.metric_history import (
    COARSE,
    FINE,
    HOUR,
    HOURS,
    MINUTE,
    POINTS,
    ServerCell,
    ServerRing,
    ServerWindow,
    merge_cells,
)
from recovery.domain.servers.unsent_samples import UnsentSamples

NOW = 1_700_000_040_000  # 22:14:00 UTC of its day


def cell(at: int, cpu: float = 50.0) -> ServerCell:
    return ServerCell(at, cpu, cpu, cpu, 25.0, 1.5)


class Strings:
    """The strings of a store, as SETRANGE leaves them."""

    def __init__(self) -> None:
        self._strings = {FINE: bytearray(FINE.circle.size), COARSE: bytearray(COARSE.circle.size)}

    def write(self, backlog: UnsentSamples) -> None:
        for ring, offset, piece in backlog.pieces():
            self._strings[ring][offset : offset + len(piece)] = piece
        backlog.written()

    def read(self, ring: ServerRing, first: int, last: int) -> dict[int, ServerCell]:
        raw = b"".join(bytes(self._strings[ring][low : high + 1]) for low, high in ring.spans(first, last))
        return ring.read(raw, first, last)


def test_a_cell_is_small_and_comes_back_as_it_was() -> None:
    assert FINE.circle.layout.size <= 20
    for written in (
        ServerCell(NOW, 81.55, 70.25, 99.99, 12.5, 130.04),
        ServerCell(NOW, 0.0, None, 0.0, None, 0.0),
        ServerCell(NOW),
    ):
        ((_, piece),) = FINE.pieces({FINE.period(NOW): written})
        assert FINE.read(piece, 0, FINE.period(NOW)) == {FINE.period(NOW): written}


def test_what_no_server_can_measure_is_cut_to_what_one_can() -> None:
    ((_, piece),) = FINE.pieces({1: ServerCell(0, 100.4, -0.1, 1e9, 50.0, 1e12)})
    (read,) = FINE.read(piece, 1, 1).values()
    assert read[1:5] == (100.0, 0.0, 100.0, 50.0)
    assert read.load == (2**32 - 2) / 100


@pytest.mark.parametrize("hours", HOURS)
def test_a_chart_has_at_most_720_points_of_a_ring_that_holds_all_of_them(hours: float) -> None:
    window = ServerWindow.of(hours, NOW)
    assert window.size <= POINTS
    assert window.size * window.step == hours * HOUR
    assert window.end <= NOW < window.end + window.step
    first, last = window.periods
    assert last - first + 1 <= window.ring.cells - window.step // window.ring.unit


def test_an_hour_is_as_fine_as_it_was_measured_and_a_day_is_not() -> None:
    assert [ServerWindow.of(hours, NOW).step for hours in HOURS] == [5_000, 5_000, MINUTE, 2 * MINUTE, 15 * MINUTE]


def test_points_stay_put_while_time_goes_on() -> None:
    early, late = ServerWindow.of(24, NOW), ServerWindow.of(24, NOW + 7 * MINUTE)
    assert (late.start - early.start) % early.step == 0


def test_a_point_is_the_mean_and_keeps_the_peak_and_a_gap_is_a_gap() -> None:
    window = ServerWindow(start=NOW, step=2 * MINUTE, size=2)
    found = window.series([cell(NOW, 10.0), cell(NOW + MINUTE, 90.0), cell(NOW - 1, 1.0), cell(window.end, 1.0)])
    assert found.points == (ServerCell(NOW, 50.0, 50.0, 90.0, 25.0, 1.5), ServerCell(NOW + 2 * MINUTE))
    assert found.points[1].is_unknown


def test_what_is_not_known_takes_no_part_in_a_mean() -> None:
    assert merge_cells(0, [ServerCell(0, 40.0), ServerCell(5, None, None, None, 7.0)]) == ServerCell(
        0, 40.0, None, None, 7.0, None
    )


def test_minutes_are_made_of_their_cells_also_when_they_were_written_one_by_one() -> None:
    backlog, strings = UnsentSamples(), Strings()
    for index in range(24):
        backlog.add(cell(NOW + index * 5_000 + 3_141, float(index)))
        strings.write(backlog)
    minute = COARSE.period(NOW)
    found = strings.read(COARSE, minute, minute + 1)
    assert [found[minute][1:4], found[minute + 1][1:4]] == [(5.5, 5.5, 11.0), (17.5, 17.5, 23.0)]
    assert len(strings.read(FINE, FINE.period(NOW), FINE.period(NOW) + 23)) == 24


def test_a_look_that_came_late_leaves_no_hole() -> None:
    backlog, strings = UnsentSamples(), Strings()
    backlog.add(cell(NOW))
    backlog.add(cell(NOW + 14_000, 80.0), NOW)
    strings.write(backlog)
    first = FINE.period(NOW)
    assert [one.cpu_raw for one in strings.read(FINE, first, first + 5).values()] == [50.0, 80.0, 80.0]


def test_without_a_store_an_hour_is_kept_and_no_more() -> None:
    backlog, strings = UnsentSamples(), Strings()
    for index in range(3 * 720):
        backlog.add(cell(NOW + index * 5_000))
    strings.write(backlog)
    last = FINE.period(NOW) + 3 * 720 - 1
    assert sorted(strings.read(FINE, last - 700, last)) == list(range(last - 700, last + 1))
    assert not strings.read(FINE, last - 743, last - 720)
    assert len(strings.read(COARSE, COARSE.period(NOW), COARSE.period(NOW) + 180)) == 60


def test_what_is_written_is_not_kept_and_not_written_again() -> None:
    backlog, strings = UnsentSamples(), Strings()
    for index in range(720):
        backlog.add(cell(NOW + index * 5_000))
    strings.write(backlog)
    assert backlog.is_empty
    assert list(backlog.pieces()) == []


def test_a_clock_that_is_set_back_writes_over_what_it_wrote_before() -> None:
    backlog, strings = UnsentSamples(), Strings()
    backlog.add(cell(NOW + HOUR))
    strings.write(backlog)
    backlog.add(cell(NOW, 7.0), NOW + HOUR)
    strings.write(backlog)
    minute = COARSE.period(NOW)
    assert strings.read(COARSE, minute, minute)[minute].cpu_raw == 7.0
