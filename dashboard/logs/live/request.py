"""Parses log requests from their URL: every parameter is bounded, and a wrong one is refused with an explanation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

from dashboard.logs.live import cursor
from dashboard.logs.live.cursor import SOURCES, CursorUnreadable, LogCursorPosition
from recovery.domain.logs.types import TERM_LIMIT, TERMS_LIMIT, LogLevel, LogQuery
from recovery.logs.base import LogReader

ADDRESS_BYTES = 32 * 1024  # proxies take less
FIELDS = 200  # in one address
LABELS = 10  # names; each has some values
VALUES = 50
TEXT = 1000  # characters of a label's name or value
TAB = 64
LATEST_MS = 9_000_000_000_000  # the year 2255: a larger number is no time in ms, and its ns would not fit into 64 bits
LARGEST = 1_000_000_000  # generations of a page
MS = 1_000_000  # ns
HOUR = 3600 * 10**9


class LogRequestRefused(Exception):
    """Raised for a wrong URL parameter; the text says what would be right."""


@dataclass(frozen=True, slots=True)
class LogRequest:
    """Parsed request for a log stream.

    `start` and `end` are those of `query`, in ns. `spots`: where to continue; `is_lost`: they could not be read.
    """

    sources: Mapping[str, LogReader]
    query: LogQuery
    g: int = 0
    tab: str = ""
    spots: Mapping[str, LogCursorPosition] = field(default_factory=dict)
    is_lost: bool = False

    @property
    def is_live(self) -> bool:
        return self.query.end is None

    @property
    def onward(self) -> LogQuery:
        """The same query without times: a line that arrives later is wanted, whatever its timestamp."""
        query = self.query
        return LogQuery(query.labels, query.include, query.exclude, query.levels)


class UrlFields:
    """Parameters of a URL, each with all its values."""

    def __init__(self, query: bytes) -> None:
        if len(query) > ADDRESS_BYTES:
            raise LogRequestRefused(f"A URL has at most {ADDRESS_BYTES // 1024} KB.")
        try:
            given = parse_qsl(query.decode("latin-1"), keep_blank_values=True, max_num_fields=FIELDS)
        except ValueError as error:
            raise LogRequestRefused(f"A URL has at most {FIELDS} parameters.") from error
        self._given: dict[str, list[str]] = {}
        for name, text in given:
            self._given.setdefault(name, []).append(text)

    def all(self, name: str) -> list[str]:
        return [text for text in self._given.get(name, ()) if text]

    def one(self, name: str) -> str:
        return next(reversed(self.all(name)), "")

    def number(self, name: str, most: int) -> int | None:
        text = self.one(name)
        if not text:
            return None
        if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or int(text) > most:
            raise LogRequestRefused(f"{name}: {text[:40]!r} is not a number from 0 to {most}.")
        return int(text)


def parse_log_request(query: bytes, last: str, known: Mapping[str, LogReader], now_ns: int) -> LogRequest:
    """Parses a stream request. `last`: the header Last-Event-ID, preferred to the parameter. Raises Refused."""
    fields = UrlFields(query)
    asked = parse_query(fields)
    if asked.end is None and asked.start is None:
        asked = LogQuery(asked.labels, asked.include, asked.exclude, asked.levels, start=now_ns - HOUR)
    spots, is_lost = _spots(last or fields.one("last"))
    tab = fields.one("tab")
    if len(tab) > TAB or not (tab.isascii() and tab.isprintable()):
        raise LogRequestRefused(f"tab: write at most {TAB} letters and digits.")
    return LogRequest(select_sources(fields, known), asked, fields.number("g", LARGEST) or 0, tab, spots, is_lost)


def select_sources(fields: UrlFields, known: Mapping[str, LogReader]) -> Mapping[str, LogReader]:
    """Returns the named sources, or the first few if none is named. Raises Refused."""
    named = list(dict.fromkeys(fields.all("source"))) or list(known)[:SOURCES]
    if len(named) > SOURCES:
        raise LogRequestRefused(f"source: at most {SOURCES} at once.")
    return {name: select_source(name, known) for name in named}


def select_source(name: str, known: Mapping[str, LogReader]) -> LogReader:
    if name not in known:
        raise LogRequestRefused(f"source: there is no {name[:40]!r}. There are: {', '.join(known)}.")
    return known[name]


def parse_query(fields: UrlFields) -> LogQuery:
    start, end = fields.number("from", LATEST_MS), fields.number("to", LATEST_MS)
    if start is not None and end is not None and start >= end:
        raise LogRequestRefused("from: must be before to.")
    return LogQuery(
        labels=labels(fields),
        include=_terms(fields, "include"),
        exclude=_terms(fields, "exclude"),
        levels=_levels(fields),
        start=None if start is None else start * MS,
        end=None if end is None else end * MS,
    )


def labels(fields: UrlFields) -> tuple[tuple[str, frozenset[str]], ...]:
    chosen: dict[str, set[str]] = {}
    for given in fields.all("label"):
        name, equals, value = given.partition("=")
        if not name or not equals or max(len(name), len(value)) > TEXT:
            raise LogRequestRefused("label: write it as NAME=VALUE.")
        chosen.setdefault(name, set()).add(value)
    if len(chosen) > LABELS or any(len(values) > VALUES for values in chosen.values()):
        raise LogRequestRefused(f"label: at most {LABELS} names with {VALUES} values each.")
    return tuple(sorted((name, frozenset(values)) for name, values in chosen.items()))


def _terms(fields: UrlFields, name: str) -> tuple[str, ...]:
    terms = tuple(dict.fromkeys(fields.all(name)))
    if len(terms) > TERMS_LIMIT:
        raise LogRequestRefused(f"{name}: at most {TERMS_LIMIT} texts.")
    if any(len(term) > TERM_LIMIT for term in terms):
        raise LogRequestRefused(f"{name}: a text has at most {TERM_LIMIT} characters.")
    return terms


def _levels(fields: UrlFields) -> frozenset[LogLevel]:
    try:
        return frozenset(LogLevel(level) for level in fields.all("level"))
    except ValueError as error:
        raise LogRequestRefused(f"level: there are {', '.join(LogLevel)}.") from error


def _spots(text: str) -> tuple[Mapping[str, LogCursorPosition], bool]:
    """Decodes a cursor; the second value is True if the cursor could not be read."""
    try:
        return (cursor.decode(text) if text else {}), False
    except CursorUnreadable:
        return {}, True
