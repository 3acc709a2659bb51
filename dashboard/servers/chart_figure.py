"""Draws one server over time as a plotly figure: CPU with its gate and events, and below it memory and load.

The three share one axis of time, so that the pointer reads all of them in one moment. Colours are named and resolved in
the browser, as in `throughput`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from recovery.domain.servers.metric_history import SECOND, ServerCell, ServerSeries

Figure = dict[str, Any]

_FINE = 5 * SECOND  # a point of one sample has no peak of its own
_AT_TOP = 97  # percent: where a lost job is marked, above whatever the CPU did
_CPU, _MEMORY, _LOAD = "y", "y2", "y3"
_PLACES = {_CPU: (0.5, 1.0), _MEMORY: (0.25, 0.42), _LOAD: (0.0, 0.17)}  # parts of the height, from below


@dataclass(frozen=True, slots=True)
class ServerChartMark:
    """Event on the chart. `y` is where it is drawn, in percent of CPU; None: at the top."""

    at: int
    words: str
    y: float | None = None


@dataclass(frozen=True, slots=True)
class ServerChartData:
    """Data of the chart. `shut` are the periods in which the gate was closed; a threshold of None: there is no gate."""

    series: ServerSeries
    start: int
    end: int
    close_at: float | None = None
    open_at: float | None = None
    shut: Sequence[tuple[int, int]] = ()
    let_in: Sequence[ServerChartMark] = ()
    refused: Sequence[ServerChartMark] = ()
    lost_here: Sequence[ServerChartMark] = ()
    lost_elsewhere: Sequence[ServerChartMark] = ()


def figure(drawn: ServerChartData) -> Figure:
    return {
        "data": [*_lines(drawn.series), *_marks(drawn)],
        "layout": {
            "hovermode": "x unified",
            "hoversubplots": "axis",
            "showlegend": False,
            "margin": {"l": 46, "r": 10, "t": 20, "b": 58},
            "paper_bgcolor": "var:panel",
            "plot_bgcolor": "var:panel",
            "font": {"color": "var:muted", "size": 12},
            "hoverlabel": {"bgcolor": "var:raised", "bordercolor": "var:line", "font": {"color": "var:text"}},
            "xaxis": {
                "type": "date",
                "range": [drawn.start, drawn.end],
                "hoverformat": "%Y-%m-%d %H:%M:%S",
                "gridcolor": "var:line",
                "linecolor": "var:line",
                "anchor": _LOAD,
            },
            **{f"yaxis{axis[1:]}": _axis(axis) for axis in _PLACES},
            "shapes": [*(_period(*span) for span in drawn.shut), *_thresholds(drawn)],
            "annotations": [_title("CPU", _CPU), _title("Memory", _MEMORY), _title("Load", _LOAD)],
        },
        "again": drawn.series.step,
        "note": drawn.series.note,
    }


def _lines(series: ServerSeries) -> list[Figure]:
    """Draws the lines. An unknown point is null: plotly leaves a gap, never a zero."""
    at = [point.at for point in series.points]
    has_peaks = series.step > _FINE and any(point.cpu_peak is not None for point in series.points)
    peak = [_line("peak", at, series, "cpu_peak", width=1, opacity=0.35)] if has_peaks else []
    return [
        *peak,
        _line("raw", at, series, "cpu_raw", width=1, opacity=0.6),
        _line("smoothed", at, series, "cpu_ema", width=2.4),
        _line("memory", at, series, "memory", axis=_MEMORY, colour="muted", width=1.4),
        _line("load", at, series, "load", axis=_LOAD, colour="muted", width=1.4, unit=""),
    ]


def _line(
    name: str,
    at: Sequence[int],
    series: ServerSeries,
    field: str,
    *,
    width: float,
    axis: str = _CPU,
    colour: str = "active",
    opacity: float = 1,
    unit: str = " %",
) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": at,
        "y": [_rounded(point, field) for point in series.points],
        "yaxis": axis,
        "line": {"color": f"var:{colour}", "width": width},
        "opacity": opacity,
        "connectgaps": False,
        "hovertemplate": f"%{{y:.{1 if unit else 2}f}}{unit}",
    }


def _rounded(point: ServerCell, field: str) -> float | None:
    value: float | None = getattr(point, field)
    return None if value is None else round(value, 2)


def _marks(drawn: ServerChartData) -> list[Figure]:
    kinds = (
        ("admitted", drawn.let_in, "triangle-up", "completed"),
        ("refused", drawn.refused, "x-thin", "waiting-text"),
        ("lost on this server", drawn.lost_here, "diamond", "stuck"),
        ("lost, server unknown", drawn.lost_elsewhere, "diamond-open", "stuck"),
    )
    return [_points(name, marks, symbol, colour) for name, marks, symbol, colour in kinds if marks]


def _points(name: str, marks: Sequence[ServerChartMark], symbol: str, colour: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [mark.at for mark in marks],
        "y": [_AT_TOP if mark.y is None else round(mark.y, 1) for mark in marks],
        "text": [escape(mark.words, quote=False) for mark in marks],  # plotly reads some markup in it
        "yaxis": _CPU,
        "cliponaxis": False,
        "marker": {
            "symbol": symbol,
            "size": 9,
            "color": f"var:{colour}",
            "line": {"width": 1.6, "color": f"var:{colour}"},
        },
        "hovertemplate": "%{text}",
    }


def _axis(axis: str) -> Figure:
    shares = {"range": [0, 100], "ticksuffix": " %", "dtick": 25 if axis == _CPU else 50}
    plain = {"rangemode": "tozero", "nticks": 3}
    return {
        "domain": list(_PLACES[axis]),
        "gridcolor": "var:line",
        "zerolinecolor": "var:line",
        "fixedrange": True,
        **(plain if axis == _LOAD else shares),
    }


def _period(start: int, end: int) -> Figure:
    """Draws a period in which the gate was closed."""
    return {
        "type": "rect",
        "layer": "below",
        "x0": start,
        "x1": end,
        "yref": "y domain",
        "y0": 0,
        "y1": 1,
        "fillcolor": "var:failed",
        "opacity": 0.1,
        "line": {"width": 0},
    }


def _thresholds(drawn: ServerChartData) -> list[Figure]:
    levels = [level for level in (drawn.close_at, drawn.open_at) if level is not None]
    return [
        {
            "type": "line",
            "layer": "below",
            "xref": "x domain",
            "x0": 0,
            "x1": 1,
            "y0": level,
            "y1": level,
            "line": {"color": "var:muted", "width": 1, "dash": "dash"},
        }
        for level in levels
    ]


def _title(words: str, axis: str) -> Figure:
    """Draws a title above the left end of its part; the page says the rest."""
    return {
        "text": words,
        "xref": "x domain",
        "yref": f"{axis} domain",
        "x": 0,
        "y": 1,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"size": 11, "color": "var:muted"},
    }
