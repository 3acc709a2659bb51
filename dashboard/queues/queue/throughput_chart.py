"""Draws completed and failed per bucket as a plotly figure: plain dicts, with colours that the browser resolves.

A colour is written `var:failed`; static/js/charts.js puts the token's value of the theme in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recovery.domain.queues.time_series import FinishedPoint, FinishedSeries
from recovery.domain.time_units import age

Figure = dict[str, Any]


def figure(series: FinishedSeries) -> Figure:
    """Draws stacked bars over time. An unknown bucket is null: plotly leaves a gap, never a zero."""
    return {
        "data": [
            _trace(series, "completed", "completed", lambda point: point.completed),
            _trace(series, "failed", "failed", lambda point: point.failed),
        ],
        "layout": {
            "barmode": "stack",
            "bargap": 0.12,
            "hovermode": "x unified",
            "showlegend": False,
            "margin": {"l": 48, "r": 8, "t": 8, "b": 58},
            "paper_bgcolor": "var:panel",
            "plot_bgcolor": "var:panel",
            "font": {"color": "var:muted", "size": 12},
            "xaxis": {
                "type": "date",
                "hoverformat": "%Y-%m-%d %H:%M",
                "gridcolor": "var:line",
                "linecolor": "var:line",
            },
            "yaxis": {
                "rangemode": "tozero",
                "gridcolor": "var:line",
                "zerolinecolor": "var:line",
            },
        },
        "step": series.step_ms,
        "note": series.note,
    }


def bucket_label(series: FinishedSeries) -> str:
    """Returns the time that one bar stands for: `per minute`, `per 42 min`."""
    return "per minute" if series.step_ms == 60_000 else f"per {age(series.step_ms)}"


def _trace(series: FinishedSeries, name: str, colour: str, value: Callable[[FinishedPoint], int | None]) -> Figure:
    return {
        "type": "bar",
        "name": name,
        "x": [point.at_ms for point in series.points],
        "y": [value(point) for point in series.points],
        "marker": {"color": f"var:{colour}", "line": {"width": 0}},
        "hovertemplate": "%{y:,}",
    }
