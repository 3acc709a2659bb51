"""Every metric is documented, and what we hand out for Prometheus and Grafana asks for metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.metrics.page import page
from dashboard.metrics.text import Dialect
from tests.prometheus import promtool
from tests.scraping import full

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "unstall.json"
TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
OURS = re.compile(r"\b(?:unstall|bullmq)_[a-z0-9_]+\b")
DOCUMENTED = re.compile(r"^\| `((?:unstall|bullmq)_[a-z0-9_]+)` \|", re.MULTILINE)
OF_HISTOGRAMS = ("_bucket", "_count", "_sum")


def families() -> dict[str, str]:
    """Name and kind of every family of ours."""
    found = dict(TYPE.findall(page(full(), Dialect.TEXT, 0)))
    return {name: kind for name, kind in found.items() if OURS.fullmatch(name)}


def series() -> set[str]:
    told = families()
    histograms = {f"{name}{end}" for name, kind in told.items() if kind == "histogram" for end in OF_HISTOGRAMS}
    return {*told, *histograms}


def queries() -> Iterator[str]:
    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (str(variable["query"]) for variable in dashboard["templating"]["list"])


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_every_metric_is_documented_and_no_other() -> None:
    documented = DOCUMENTED.findall((ROOT / "docs" / "metrics.md").read_text("utf-8"))
    assert sorted(documented) == sorted(families())


def test_the_rules_and_the_dashboard_ask_for_metrics_that_exist() -> None:
    text = RULES.read_text("utf-8") + "\n".join(queries())
    assert set(OURS.findall(text)) - series() == set()


def test_panels_have_a_query_each_and_do_not_cover_each_other() -> None:
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    places = [
        (panel["gridPos"]["x"] + x, panel["gridPos"]["y"] + y)
        for panel in panels
        for x in range(panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["h"])
    ]
    assert len(places) == len(set(places))
    assert all(panel["type"] == "row" or panel["targets"] for panel in panels)
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", str(RULES)),
        ("check", "config", "--syntax-only", str(ROOT / "deploy" / "prometheus" / "prometheus.yml")),
        ("test", "rules", str(Path(__file__).with_name("alerts.test.yml"))),
    ],
    ids=["rules", "configuration", "what fires on what"],
)
def test_promtool_agrees(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == 0, done.stdout + done.stderr
