"""Spreads the tests over the workers: what shares an expensive thing stays together, and what takes long begins first.

A file stays on one worker, so that what its tests share is started once. All files of a folder below tests/browser
share a site and a Chromium, so they stay together too. How long a file takes is known from the last run, which is kept
in `.pytest_cache`; a run writes the seconds of each test to `.pytest_cache/durations.tsv`.
"""

from __future__ import annotations

import gc
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_FILE = Path(".pytest_cache") / "durations.tsv"
_BROWSER = "tests/browser/"
# Seconds that a file of a folder takes about, as long as nobody measured it: those that wait come first, the small ones
# fill what is left.
_GUESSES = {"browser": 300.0, "fault": 20.0, "integration": 10.0, "contract": 7.0, "web": 4.0, "property": 1.0}
# And of one test of these marks. Whoever begins with them does not end with one of a quarter of an hour.
_LONG = {"long": 120.0, "n8n": 50.0}


class ByFile(LoadFileScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


class Durations:
    """Seconds of each test of this run, with what it set up and took down."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        if not self._seconds:
            return
        self._file.parent.mkdir(exist_ok=True)
        known = {**read(self._file), **self._seconds}
        lines = sorted(((seconds, name) for name, seconds in known.items()), reverse=True)
        self._file.write_text("".join(f"{seconds:.3f}\t{name}\n" for seconds, name in lines), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.option.loadscopereorder = False  # we order them by time, not by number
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations(config.rootpath / _FILE))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    expected = _expected(config.rootpath / _FILE, items)
    items.sort(key=lambda item: -expected[_scope(item.nodeid)])


def read(file: Path) -> dict[str, float]:
    if not file.exists():
        return {}
    pairs = (line.split("\t", 1) for line in file.read_text(encoding="utf-8").splitlines() if "\t" in line)
    return {name: float(seconds) for seconds, name in pairs}


def _expected(file: Path, items: list[pytest.Item]) -> dict[str, float]:
    """Seconds of each file by the last run; by its marks and its folder where that did not meet it."""
    known, seconds = read(file), defaultdict[str, float](float)
    for item in items:
        guess = max((_LONG[mark] for mark in _LONG if item.get_closest_marker(mark)), default=0.0)
        seconds[_scope(item.nodeid)] += known.get(item.nodeid, guess)
    return {scope: took or _GUESSES.get(scope.split("/")[1], 0.5) for scope, took in seconds.items()}


def _scope(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return file.rpartition("/")[0] if file.startswith(_BROWSER) else file


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Any:
    """Collects without looking for garbage, and never looks again at what was collected: it stays until the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
