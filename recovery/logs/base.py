"""Contract of every source of log lines. Web processes call all of it from their event loop.

A place is a text that only its source understands: printable ASCII without blanks, at most PLACE_LIMIT characters. It
names the point behind a line. A reader that goes on from it misses nothing and sees nothing twice, also after a
restart. Whatever goes wrong is raised as a StoreError, whose text and advice are shown as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recovery.domain.logs.types import LogLine, LogQuery

PLACE_LIMIT = 200


@dataclass(frozen=True, slots=True)
class LogGap:
    """Lines that are lost for the reader, and why. `count` None: it is unknown how many."""

    reason: str
    count: int | None = None


@dataclass(frozen=True, slots=True)
class LogResultPage:
    """Lines in their order, oldest first, and where they lie. `looked_at`: lines that were judged for it."""

    lines: Sequence[LogLine] = ()
    before: str = ""  # go on from here to what is older; "": there is nothing older
    after: str = ""  # go on from here to what is newer
    gap: LogGap | None = None  # before the first of the lines
    is_end: bool = False  # of `read`: nothing newer was there; of `search`: nothing older is
    looked_at: int = 0
    reached: int | None = None  # ns: how far back the search has come


@dataclass(frozen=True, slots=True)
class LogLabels:
    """Labels by which lines can be chosen: the names, each with values that were seen. Cut ones are said so."""

    values: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_cut: bool = False


class LogReader(Protocol):
    """Source of log lines. `pace`: seconds between two reads while nothing comes."""

    name: str
    label: str
    pace: float
    server_label: str  # the label that names the server; "": it knows no servers

    async def labels(self, start: int, end: int) -> LogLabels:
        """Returns the labels of lines between the two moments (ns)."""

    async def search(self, query: LogQuery, *, before: str = "", limit: int = 500) -> LogResultPage:
        """Returns the newest lines that match, or those before a place. Looks for a second at most and may come back
        with few lines or none, and a `before` to go on from: a search of ten million lines is many of these.
        """

    async def read(self, query: LogQuery, *, after: str, limit: int = 1000) -> LogResultPage:
        """Returns the oldest lines after a place that match. `after` "" is: from now on."""

    async def around(self, id: str, query: LogQuery, *, lines: int = 50) -> LogResultPage:
        """Returns the lines before and after one (and itself) with the query's labels; raises Missing if it is gone."""

    def tap(self, query: LogQuery) -> LogQuery:
        """Returns a query that many readers share: it lets through at least as much, so that each only picks."""

    async def close(self) -> None: ...
