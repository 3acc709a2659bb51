from __future__ import annotations

import base64
import hashlib
import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from django.conf import settings

from dashboard.queues.overview.presenters import BAR_WIDTH, bar, spark
from dashboard.queues.queue import throughput_chart
from recovery.domain.queues.time_series import FinishedPoint, FinishedSeries
from recovery.domain.queues.types import JobCounts, Rates
from tests.support.stuck.samples import counts, rates


def test_an_unknown_past_draws_nothing() -> None:
    assert spark(Rates()) is None
    assert spark(rates(None, None)) is None


def test_the_newest_minute_stands_on_the_right() -> None:
    drawn = spark(Rates((4, 0), (0, 0)))
    assert drawn is not None
    assert drawn.completed == "M118 22V1"
    assert drawn.failed == ""


def test_a_failure_is_seen_however_small() -> None:
    drawn = spark(Rates((10_000,), (1,)))
    assert drawn is not None
    assert drawn.failed


def test_a_gap_is_marked_and_is_no_zero() -> None:
    drawn = spark(Rates((4, None, 2), (0, None, 0)))
    assert drawn is not None
    assert drawn.unknown == "M115 21v1"
    assert drawn.words == "last 3 min: 6 completed, 0 failed"


def test_half_known_words_say_unknown() -> None:
    drawn = spark(Rates((4,), ()))
    assert drawn is not None
    assert drawn.words == "last 1 min: 4 completed, unknown failed"


@pytest.mark.parametrize(
    "some", [counts(waiting=1), counts(waiting=10**9, failed=1), counts(active=3, delayed=4, failed=5)]
)
def test_the_bar_is_filled_exactly(some: JobCounts) -> None:
    parts = bar(some)
    assert parts[0].x == 0
    assert parts[-1].x + parts[-1].width == BAR_WIDTH
    assert all(part.width > 0 for part in parts)


def test_what_is_completed_does_not_crowd_the_bar() -> None:
    assert [part.state for part in bar(counts(completed=10**6, waiting=1))] == ["waiting"]


def test_an_unknown_state_has_no_part() -> None:
    assert bar(JobCounts()) == ()


SERIES = FinishedSeries(
    (FinishedPoint(0, 3, 1, None), FinishedPoint(60_000, None, None, None), FinishedPoint(120_000, 0, 0, None)),
    60_000,
    "library",
)


def test_a_gap_in_a_chart_is_null_and_never_zero() -> None:
    figure = json.loads(json.dumps(throughput_chart.figure(SERIES)))
    assert [trace["y"] for trace in figure["data"]] == [[3, None, 0], [1, None, 0]]


def test_colours_are_named_and_left_to_the_theme() -> None:
    written = json.dumps(throughput_chart.figure(SERIES))
    assert "var:completed" in written
    assert not re.search(r"#[0-9a-f]{3,6}|rgb", written)


def test_plotly_is_not_imported() -> None:
    import sys

    assert "plotly" not in sys.modules


def test_the_style_that_plotly_makes_as_it_loads_is_allowed() -> None:
    """Fails when another version of plotly brings another style: then the hash in the settings must follow."""
    package = find_spec("plotly")
    assert package is not None
    assert package.origin is not None
    script = (Path(package.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    styles = re.findall(r"\.textContent='(\.maplibregl-map[^']*)'", script)
    assert len(styles) == 1
    digest = base64.b64encode(hashlib.sha256(styles[0].encode()).digest()).decode()
    assert f"'sha256-{digest}'" in settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]["style-src"]
