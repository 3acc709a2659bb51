"""Reads what the URL of /logs asks for. Invalid parts are left out, because a link must always open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import QueryDict
from django.utils.http import urlencode

from recovery.config.logs import LogSource
from recovery.domain.logs.types import TERM_LIMIT, TERMS_LIMIT, LogLevel, LogQuery
from recovery.domain.time_units import HOUR
from recovery.logs.base import PLACE_LIMIT

LIVE = ""
AHEAD = 2_000  # ms by which the clock of a server may be before ours: its newest lines are among those until now
OWN = "own"  # from … to …
LENGTHS = {"15m": HOUR // 4, "1h": HOUR, "6h": 6 * HOUR, "24h": 24 * HOUR}
RANGES = ((LIVE, "Live"), ("15m", "15 min"), ("1h", "1 h"), ("6h", "6 h"), ("24h", "24 h"), (OWN, "From … to"))
SOURCES = 4  # read together in one stream
LABELS = 100  # label values in one address
_TEXT = 1000  # characters of a label's name and value
_LATEST = 9_000_000_000_000  # ms: the latest time that is accepted
_NS = 1_000_000


@dataclass(frozen=True, slots=True)
class LogPageQuery:
    """Query of the log page. `start` and `end` in ms, of a custom range; `line`: one to show with its neighbours."""

    sources: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # each NAME=VALUE
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    levels: tuple[LogLevel, ...] = ()
    range: str = LIVE
    start: int | None = None
    end: int | None = None
    line: str = ""

    @classmethod
    def of(cls, given: QueryDict, known: Sequence[LogSource]) -> LogPageQuery:
        names = {source.name for source in known}
        start, end = _moment(given.get("from", "")), _moment(given.get("to", ""))
        chosen = OWN if start is not None or end is not None else given.get("range", LIVE)
        line = given.get("line", "")
        return cls(
            sources=tuple(name for name in dict.fromkeys(given.getlist("source")) if name in names)[:SOURCES],
            labels=tuple(filter(_is_label, dict.fromkeys(given.getlist("label"))))[:LABELS],
            include=_terms(given.getlist("include")),
            exclude=_terms(given.getlist("exclude")),
            levels=tuple(level for level in LogLevel if level.value in given.getlist("level")),
            range=chosen if chosen in dict(RANGES) else LIVE,
            start=start,
            end=end,
            line=line if len(line) <= PLACE_LIMIT and line.isascii() and line.isprintable() else "",
        )

    @property
    def is_live(self) -> bool:
        return self.range == LIVE

    @property
    def from_utc(self) -> str:
        return _written(self.start)

    @property
    def to_utc(self) -> str:
        return _written(self.end)

    def moments(self, now: int) -> tuple[int, int]:
        """Returns start and end in ms; for a page that is read once, live is the last hour."""
        if self.range == OWN:
            end = now if self.end is None else self.end
            return (max(0, end - HOUR) if self.start is None or self.start >= end else self.start), end
        return now - LENGTHS.get(self.range, HOUR), now

    def query(self, now: int) -> LogQuery:
        start, end = self.moments(now)
        names: dict[str, set[str]] = {}
        for label in self.labels:
            name, _, value = label.partition("=")
            names.setdefault(name, set()).add(value)
        return LogQuery(
            labels=tuple((name, frozenset(values)) for name, values in names.items()),
            include=self.include,
            exclude=self.exclude,
            levels=frozenset(self.levels),
            start=start * _NS,
            end=(end + AHEAD if end == now else end) * _NS,
        )

    def address(self, *, with_line: bool = True) -> str:
        """Returns the URL's query for the same again; "" when nothing is set."""
        pairs = [*(("source", name) for name in self.sources), *self.choice(), *self._time()]
        if with_line and self.line:
            pairs.append(("line", self.line))
        return urlencode(pairs)

    def choice(self) -> list[tuple[str, str]]:
        """Returns the parameters that select lines, without sources and time."""
        return [
            *(("label", label) for label in self.labels),
            *(("include", term) for term in self.include),
            *(("exclude", term) for term in self.exclude),
            *(("level", level.value) for level in self.levels),
        ]

    def _time(self) -> list[tuple[str, str]]:
        if self.range != OWN:
            return [("range", self.range)] if self.range else []
        moments = (("from", self.start), ("to", self.end))
        return [(name, str(at)) for name, at in moments if at is not None] or [("range", OWN)]


def _is_label(text: str) -> bool:
    name, equals, _ = text.partition("=")
    return bool(name and equals) and len(text) <= _TEXT


def _terms(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(term for term in dict.fromkeys(given) if term and len(term) <= TERM_LIMIT)[:TERMS_LIMIT]


def _moment(text: str) -> int | None:
    """Parses milliseconds, or a date with its time as a form sends it, which without scripts is in UTC."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(_LATEST)):
        return min(int(text), _LATEST)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return min(_LATEST, max(0, int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)))


def _written(at: int | None) -> str:
    return "" if at is None else f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%dT%H:%M:%S}"
