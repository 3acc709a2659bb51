"""[metrics]: who may scrape us beside the holders of a token, and how much they get."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recovery.config.readers import Problems, read_table
from recovery.config.schema import METRICS


@dataclass(frozen=True, slots=True)
class Metrics:
    """`queues`: how many of them have lines of their own at most."""

    open_on_loopback: bool = False
    queues: int = 2_000


def read_metrics(written: Mapping[str, Any], folder: Path, problems: Problems) -> Metrics:
    values = read_table(written, METRICS, "metrics.", folder, problems)
    return Metrics(values["open_on_loopback"], int(values["queues"]))
