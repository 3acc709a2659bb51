"""Defines log lines: what they are once they are safe to show, and the query of a reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

TERM_LIMIT = 200  # characters of one text to look for
TERMS_LIMIT = 10


class LogLevel(StrEnum):
    TRACE = "trace"
    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True)
class StyledSpan:
    """Part of a line's text in one look: words from a fixed list ("bold", "red", "bright-green"), or none."""

    text: str
    look: str = ""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A log line, cut, redacted, without control characters. `at` in nanoseconds: no number for JavaScript."""

    id: str  # its own place (logs/base.py): a link names it, and going on after it brings the next line
    at: int
    text: str
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    level: LogLevel | None = None
    spans: tuple[StyledSpan, ...] = ()  # of the text, when it has colours
    left_out: int = 0  # bytes behind what is shown


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Query for log lines. Each named label must have one of its values. Texts are literal, in either case, of the line
    or of the value of any of its labels. Moments in ns.
    """

    labels: tuple[tuple[str, frozenset[str]], ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    levels: frozenset[LogLevel] = frozenset()
    start: int | None = None  # inclusive
    end: int | None = None  # exclusive
    is_revealed: bool = False  # secrets stay in the lines: only for one line that a person reveals

    def has(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(name, "") in values for name, values in self.labels)

    def beside(self, labels: Mapping[str, str]) -> LogQuery:
        """Returns the query without the texts that stand in these labels: the rest has to be found in the line."""
        left = tuple(term for term in self.include if not _stands_in(term, labels))
        return self if len(left) == len(self.include) else replace(self, include=left)

    def matches(self, line: LogLine) -> bool:
        """Matches the query with what is shown: a search must not find a text that is hidden."""
        if self.start is not None and line.at < self.start:
            return False
        if self.end is not None and line.at >= self.end:
            return False
        if self.levels and line.level not in self.levels:
            return False
        if not self.has(line.labels):
            return False
        if not self.include and not self.exclude:
            return True
        text, labels = line.text.casefold(), line.labels
        return all(term.casefold() in text or _stands_in(term, labels) for term in self.include) and not any(
            term.casefold() in text or _stands_in(term, labels) for term in self.exclude
        )


def _stands_in(term: str, labels: Mapping[str, str]) -> bool:
    folded = term.casefold()
    return any(folded in value.casefold() for value in labels.values())
