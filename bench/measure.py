"""Times, percentiles, and the table and file that a run leaves behind."""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).with_name("results")
_LOAD = os.getloadavg()[0]  # as it was when the run began


@dataclass(frozen=True, slots=True)
class Row:
    """One measured number."""

    what: str
    value: float
    unit: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Goal:
    """What we promised, and whether it held in this run."""

    text: str
    measured: float
    held: bool


@dataclass(frozen=True, slots=True)
class Observation:
    """What was expected of something that was done to the product, and what was seen."""

    what: str
    expected: str
    seen: str
    held: bool


@dataclass(slots=True)
class Result:
    """One benchmark of one run."""

    name: str
    title: str
    rows: list[Row] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    setting: dict[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        return all(one.held for one in (*self.goals, *self.observations))

    def row(self, what: str, value: float, unit: str, note: str = "") -> None:
        self.rows.append(Row(what, value, unit, note))

    def goal(self, text: str, measured: float, *, most: float | None = None, least: float | None = None) -> None:
        held = (most is None or measured <= most) and (least is None or measured >= least)
        self.goals.append(Goal(text, measured, held))


def timed(action: Callable[[], object], rounds: int, *, warm: int = 3) -> list[float]:
    """Milliseconds of each round, after some that do not count."""
    for _ in range(warm):
        action()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        action()
        times.append((time.perf_counter() - started) * 1000)
    return times


def side_by_side(actions: dict[str, Callable[[], object]], rounds: int, *, warm: int = 3) -> dict[str, list[float]]:
    """Milliseconds of each, one round of all after the other: a busy moment of the machine hits all of them."""
    for action in actions.values():
        for _ in range(warm):
            action()
    times: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(rounds):
        for name, action in actions.items():
            times[name] += timed(action, 1, warm=0)
    return times


def percentile(values: Iterable[float], share: float) -> float:
    """Nearest rank; `share` from 0 to 1."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * len(ordered) + 0.5) - 1))]


def median(values: Iterable[float]) -> float:
    return percentile(values, 0.5)


def machine() -> dict[str, Any]:
    memory = psutil.virtual_memory().total / (1 << 30)
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "processor": _processor(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load_before": round(_LOAD, 2),  # of the last minute: above 0.5 somebody else was at work
    }


def write(results: Sequence[Result], *, quick: bool) -> Path:
    """One file a run, named by its time; `latest.json` is a copy of the newest."""
    RESULTS.mkdir(exist_ok=True)
    taken = time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime())
    document = {
        "taken": taken,
        "command": " ".join([Path(sys.executable).name, "-m", "bench", *sys.argv[1:]]),
        "quick": quick,
        "machine": machine(),
        "results": [asdict(result) for result in results],
    }
    path = RESULTS / f"{taken}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    (RESULTS / "latest.json").write_text(path.read_text())
    return path


def table(results: Sequence[Result]) -> str:
    """The run as Markdown, ready for docs/performance.md."""
    return "\n\n".join(_section(result) for result in results)


def _section(result: Result) -> str:
    lines = [f"### {result.title}"]
    if result.rows:
        lines += ["", "| what | measured | |", "|---|---:|---|"]
        lines += [f"| {row.what} | {number(row.value)} {row.unit} | {row.note} |" for row in result.rows]
    if result.goals:
        lines += ["", "| goal | measured | |", "|---|---:|---|"]
        lines += [f"| {goal.text} | {number(goal.measured)} | {_verdict(goal.held)} |" for goal in result.goals]
    if result.observations:
        lines += ["", "| what | expected | seen | |", "|---|---|---|---|"]
        lines += [f"| {one.what} | {one.expected} | {one.seen} | {_verdict(one.held)} |" for one in result.observations]
    return "\n".join(lines)


def _verdict(held: bool) -> str:
    return "held" if held else "**missed**"


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


@contextmanager
def memory_of_ours() -> Iterator[list[float]]:
    """This process's memory in MB, every few ms; the first is as it was before."""
    process, over = psutil.Process(), threading.Event()
    sizes = [process.memory_info().rss / (1 << 20)]

    def look() -> None:
        while not over.wait(0.01):
            sizes.append(process.memory_info().rss / (1 << 20))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sizes
    finally:
        over.set()
        thread.join()
        sizes.append(process.memory_info().rss / (1 << 20))
