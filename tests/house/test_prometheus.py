"""Every metric is documented, and what we hand out for Prometheus and Grafana asks for metrics that exist."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.metrics.exposition import MetricsFormat
from dashboard.metrics.render import render_page
from tests.support.prometheus import promtool
from tests.support.scraping import full

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
CONFIGURATION = ROOT / "deploy" / "prometheus" / "prometheus.yml"
CASES = Path(__file__).with_name("alerts.test.yml")
DASHBOARD = ROOT / "deploy" / "grafana" / "unstall.json"
TYPE = re.compile(r"^# TYPE (\S+) (\S+)$", re.MULTILINE)
OURS = re.compile(r"\b(?:unstall|bullmq)_[a-z0-9_]+\b")
DOCUMENTED = re.compile(r"^\| `((?:unstall|bullmq)_[a-z0-9_]+)` \|", re.MULTILINE)
OF_HISTOGRAMS = ("_bucket", "_count", "_sum")


def families() -> dict[str, str]:
    """Name and kind of every family of ours."""
    found = dict(TYPE.findall(render_page(full(), MetricsFormat.TEXT, 0)))
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


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return found


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool(), *arguments], capture_output=True, text=True, timeout=120, check=False)


def test_every_metric_is_documented_and_no_other() -> None:
    documented = DOCUMENTED.findall((ROOT / "docs" / "metrics.md").read_text("utf-8"))
    assert sorted(documented) == sorted(families())


def test_the_rules_and_the_dashboard_ask_for_metrics_that_exist() -> None:
    known = series()
    asked = {named(RULES): RULES.read_text("utf-8"), named(DASHBOARD): "\n".join(queries())}
    unknown = {name: sorted(set(OURS.findall(text)) - known) for name, text in asked.items()}
    violations = {name: metrics for name, metrics in unknown.items() if metrics}
    assert violations == {}


def test_every_panel_has_a_query() -> None:
    violations = [panel["title"] for panel in panels() if panel["type"] != "row" and not panel.get("targets")]
    assert violations == []


def test_panels_do_not_cover_each_other() -> None:
    at: dict[tuple[int, int], list[str]] = {}
    for panel in panels():
        grid = panel["gridPos"]
        for x, y in itertools.product(range(grid["w"]), range(grid["h"])):
            at.setdefault((grid["x"] + x, grid["y"] + y), []).append(panel["title"])
    violations = sorted({" and ".join(titles) for titles in at.values() if len(titles) > 1})
    assert violations == []


def test_every_panel_has_an_id_of_its_own() -> None:
    ids = Counter(panel["id"] for panel in panels())
    violations = [f"{panel['title']}: {panel['id']}" for panel in panels() if ids[panel["id"]] > 1]
    assert violations == []


@pytest.mark.usefixtures("processes")
def test_promtool_agrees() -> None:
    commands = {
        "rules": ("check", "rules", str(RULES)),
        "configuration": ("check", "config", "--syntax-only", str(CONFIGURATION)),
        "what fires on what": ("test", "rules", str(CASES)),
    }
    done = {what: run(*command) for what, command in commands.items()}
    violations = {what: ended.stdout + ended.stderr for what, ended in done.items() if ended.returncode != 0}
    assert violations == {}
