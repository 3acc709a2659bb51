"""Queries a Prometheus over HTTP, several queries in parallel, and returns its answers as plain values.

Each query is bounded in time and size. A value that is no number (NaN, Inf) counts as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.errors import Garbled, StoreError
from recovery.stores.http import http_client
from recovery.stores.http.http_client import HttpGetRequest

QUERY, RANGE = "/api/v1/query", "/api/v1/query_range"
_OWN_LIMIT = "1800ms"  # Prometheus gives up a moment before we do, and reports its timeout itself
_ADVICE = "Is this the address of a Prometheus, with its path if it has one?"


@dataclass(frozen=True, slots=True)
class PrometheusSeries:
    """Time series of an answer: its labels, and its values by their time in seconds."""

    labels: Mapping[str, str]
    values: Mapping[float, float]

    @property
    def newest(self) -> float | None:
        return self.values[max(self.values)] if self.values else None


@dataclass(frozen=True, slots=True)
class PrometheusGrid:
    """Moments of a chart, in seconds."""

    start: int
    step: int
    count: int

    @property
    def end(self) -> int:
        """Last moment of the grid."""
        return self.start + (self.count - 1) * self.step

    def line(self, rows: Sequence[PrometheusSeries]) -> tuple[float | None, ...]:
        """Returns one value for each moment. If the query left several series, the first value counts."""
        found: dict[int, float] = {}
        for row in rows:
            for at, value in row.values.items():
                found.setdefault(round((at - self.start) / self.step), value)
        return tuple(found.get(place) for place in range(self.count))


def instant(endpoint: HttpEndpoint, queries: Sequence[str]) -> list[tuple[PrometheusSeries, ...]]:
    """Runs instant queries; raises StoreError of the first that failed."""
    return _asked(endpoint, QUERY, queries, {})


def over(endpoint: HttpEndpoint, queries: Sequence[str], grid: PrometheusGrid) -> list[tuple[PrometheusSeries, ...]]:
    """Runs range queries over the moments of the grid; raises StoreError."""
    return _asked(endpoint, RANGE, queries, {"start": str(grid.start), "end": str(grid.end), "step": str(grid.step)})


def quoted(text: str) -> str:
    """Quotes text as a string literal of PromQL."""
    return json.dumps(_sound(text), ensure_ascii=False)


def _sound(text: str) -> str:
    """Replaces lone surrogates, which JSON may hold and UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def _asked(
    endpoint: HttpEndpoint, path: str, queries: Sequence[str], span: Mapping[str, str]
) -> list[tuple[PrometheusSeries, ...]]:
    limits = {"timeout": _OWN_LIMIT, **span}
    answers = http_client.fetch_all([HttpGetRequest(endpoint, path, {"query": query, **limits}) for query in queries])
    found = []
    for answer in answers:
        if isinstance(answer, StoreError):
            raise answer
        try:
            found.append(_rows(answer.body))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Garbled(endpoint.target, "it does not answer like a Prometheus", advice=_ADVICE) from error
    return found


def _rows(body: bytes) -> tuple[PrometheusSeries, ...]:
    told = json.loads(body)
    return tuple(_row(row) for row in told["data"]["result"])


def _row(row: Mapping[str, Any]) -> PrometheusSeries:
    pairs = row["values"] if "values" in row else [row["value"]]
    values = ((float(at), float(value)) for at, value in pairs)
    labels = {_sound(str(name)): _sound(str(value)) for name, value in row["metric"].items()}
    return PrometheusSeries(labels, {at: value for at, value in values if isfinite(value) and isfinite(at)})
