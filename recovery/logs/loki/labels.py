"""Reads the labels that a Loki has: by its own list of them, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from recovery.logs.base import LogLabels
from recovery.logs.loki.client import LokiClient
from recovery.logs.loki.errors import LokiRangeTooWide
from recovery.logs.loki.logql import is_name
from recovery.logs.loki.search import HOUR, LONGEST

NAMES_LIMIT = 64
VALUES_LIMIT = 1000  # of one name: more than a page can offer
_OWN = "__"  # what begins with it is Loki's own affair

T = TypeVar("T")


async def labels_of(asking: LokiClient, matchers: str, start: int, end: int) -> LogLabels:
    """Returns labels of streams that had lines between two moments; of a longer time than Loki looks at, its end."""
    names, start = await _shortened(lambda start: asking.labels(matchers, start, end), start, end)
    names = sorted(name for name in names if is_name(name) and not name.startswith(_OWN))
    shown = names[:NAMES_LIMIT]
    lists = await asyncio.gather(*(asking.values(name, matchers, start, end) for name in shown))
    values = {name: sorted(found)[:VALUES_LIMIT] for name, found in zip(shown, lists, strict=True) if found}
    return LogLabels(values, len(shown) < len(names) or any(len(found) > VALUES_LIMIT for found in lists))


async def _shortened(ask: Callable[[int], Awaitable[T]], start: int, end: int) -> tuple[T, int]:
    span = min(end - start, LONGEST)
    while True:
        try:
            return await ask(end - span), end - span
        except LokiRangeTooWide:
            if span <= HOUR:
                raise
            span = max(HOUR, span // 4)
