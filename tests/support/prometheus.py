"""A real Prometheus that scrapes us by a configuration of ours, and its promtool."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest

from tests.support.processes.measuring import Program

_ANSWER_SECONDS = 30.0


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed (Debian: apt install prometheus)")
    return found


class Scraping(Program):
    """Use as a context. `files` by name: prometheus.yml, and what it names."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__("prometheus", "/-/ready")
        for name, text in files.items():
            (self.directory / name).write_text(text)

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """An instant query: labels and value of each series."""
        answer = self.get("/api/v1/query", query=query)
        return [(row["metric"], float(row["value"][1])) for row in answer["result"]]

    def one(self, query: str) -> float | None:
        """The value of the one series that this finds; None when there is none."""
        found = self.ask(query)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def get(self, path: str, **parameters: str) -> Any:
        answer = httpx.get(f"{self.url}{path}", params=parameters, timeout=_ANSWER_SECONDS)
        answer.raise_for_status()
        return answer.json()["data"]

    def _arguments(self) -> Sequence[str]:
        file, data = self.directory / "prometheus.yml", self.directory / "data"
        return [f"--config.file={file}", f"--storage.tsdb.path={data}", "--log.level=warn"]
