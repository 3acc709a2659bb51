"""[metrics]: whether a scraper on loopback needs no token, and how many queues get series of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recovery.config.schema import METRICS
from recovery.config.validation import ConfigProblems, read_table


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """Settings of the metrics endpoint. `queues`: how many of them have lines of their own at most."""

    open_on_loopback: bool = False
    queues: int = 2_000


def read_metrics(written: Mapping[str, Any], folder: Path, problems: ConfigProblems) -> MetricsConfig:
    values = read_table(written, METRICS, "metrics.", folder, problems)
    return MetricsConfig(values["open_on_loopback"], int(values["queues"]))
