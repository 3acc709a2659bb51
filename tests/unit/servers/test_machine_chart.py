"""The chart of a server: gaps stay gaps, marks where things happened, colours left to the theme."""

from __future__ import annotations

import json
import re

from dashboard.servers.chart_figure import ServerChartData, ServerChartMark, figure
from dashboard.servers.gate_presenters import closed_periods
from dashboard.servers.presenters import NUMBERS, numbers
from recovery.domain.gate.state_machine import GateState
from recovery.domain.servers.metric_history import ServerCell, ServerSeries
from recovery.gate.queries import GateTransition

START = 1_795_000_000_000
POINTS = (
    ServerCell(START, 40.0, 42.5, 51.0, 60.0, 1.25),
    ServerCell(START + 5_000),
    ServerCell(START + 10_000, 91.0, 60.0, 91.0, 61.0, 3.0),
)
SERIES = ServerSeries(POINTS, 5_000)
DRAWN = ServerChartData(
    SERIES,
    START,
    START + 15_000,
    close_at=80.0,
    open_at=70.0,
    shut=((START, START + 5_000),),
    let_in=(ServerChartMark(START + 1_000, '<a href="https://x">import</a>', 41.0),),
    lost_here=(ServerChartMark(START + 2_000, "1 job of bull:mail"),),
)


def test_a_gap_is_null_and_never_zero() -> None:
    made = json.loads(json.dumps(figure(DRAWN)))
    lines = {trace["name"]: trace["y"] for trace in made["data"] if trace["mode"] == "lines"}
    assert lines == {
        "raw": [40.0, None, 91.0],
        "smoothed": [42.5, None, 60.0],
        "memory": [60.0, None, 61.0],
        "load": [1.25, None, 3.0],
    }


def test_a_point_of_many_samples_has_a_peak() -> None:
    made = figure(ServerChartData(ServerSeries(POINTS, 60_000), START, START + 180_000))
    assert next(trace["y"] for trace in made["data"] if trace["name"] == "peak") == [51.0, None, 91.0]


def test_thresholds_closed_periods_and_marks_are_drawn_where_they_are() -> None:
    layout, data = figure(DRAWN)["layout"], figure(DRAWN)["data"]
    period, *levels = layout["shapes"]
    assert (period["x0"], period["x1"]) == (START, START + 5_000)
    assert [level["y0"] for level in levels] == [80.0, 70.0]
    marks = {trace["name"]: (trace["x"], trace["text"]) for trace in data if trace["mode"] == "markers"}
    assert marks == {
        "admitted": ([START + 1_000], ['&lt;a href="https://x"&gt;import&lt;/a&gt;']),
        "lost on this server": ([START + 2_000], ["1 job of bull:mail"]),
    }


def test_without_a_gate_there_are_no_thresholds() -> None:
    assert figure(ServerChartData(SERIES, START, START + 15_000))["layout"]["shapes"] == []


def test_colours_are_named_and_left_to_the_theme() -> None:
    written = json.dumps(figure(DRAWN))
    assert "var:stuck" in written
    assert not re.search(r"#[0-9a-f]{3,6}|rgb", written)


def flip(at: int, state: GateState) -> GateTransition:
    return GateTransition("eu-1", START + at, state, None, "")


def test_a_gate_is_closed_from_its_flip_to_the_next_and_before_the_first_nobody_knows() -> None:
    flips = (flip(-9, GateState.CLOSED), flip(5, GateState.OPEN), flip(7, GateState.UNKNOWN), flip(8, GateState.CLOSED))
    assert closed_periods(flips, START, START + 20) == ((START, START + 5), (START + 8, START + 20))
    assert closed_periods(flips[1:2], START, START + 20) == ()
    assert closed_periods((), START, START + 20) == ()


def test_the_table_has_the_same_in_fewer_lines_newest_first() -> None:
    many = ServerSeries(tuple(ServerCell(START + i * 5_000, float(i % 100)) for i in range(719)), 5_000)
    told = numbers(many)
    assert len(told) <= NUMBERS
    assert (told[-1].at, told[-1].cpu_raw) == (START, 5.5)
    assert told[0].at > told[-1].at
