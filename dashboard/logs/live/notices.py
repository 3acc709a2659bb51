"""Builds the notices that a log stream shows between lines: missing lines, failing sources, running searches."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from recovery.domain.logs.types import LogQuery
from recovery.errors import StoreError, UnstallError
from recovery.logs.base import LogGap, LogLabels

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.5  # seconds before a failing source is read again; each further pause is twice as long
LONGEST_PAUSE = 15.0
LABELS_SHOWN = 50  # label names, and values of each, in the notice that none matched


@dataclass(frozen=True, slots=True)
class LogNotice:
    """Notice of a log stream. `kind`: gap, dropped, trouble, recovered, no-match, limit, caught-up or searching."""

    kind: str
    text: str
    advice: str = ""
    count: int | None = None
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def is_as(self, other: LogNotice | None) -> bool:
        """Returns True if the other notice calls for the same advice, also in other words (it hung up; it refuses)."""
        if other is None or self.kind != other.kind:
            return False
        return self.advice == other.advice if self.advice else self == other

    def values(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "text": self.text,
            "advice": self.advice,
            "count": self.count,
            "labels": {name: list(values) for name, values in self.labels.items()},
        }


CAUGHT_UP = LogNotice("caught-up", "")


def gap(found: LogGap) -> LogNotice:
    return LogNotice("gap", found.reason, count=found.count)


def dropped(count: int) -> LogNotice:
    text = (
        f"{count:,} {'line was' if count == 1 else 'lines were'} skipped: they arrived faster than the page shows them."
    )
    return LogNotice("dropped", text, "Narrow the filter. To see skipped lines, select their time range.", count)


def lost_place() -> LogNotice:
    text = "The position of this page was lost. It starts again; lines in between may be missing."
    return LogNotice("gap", text)


def searching(reached: int | None) -> LogNotice:
    return LogNotice("searching", f"No lines found {_back(reached)}; the search continues.")


def unfinished(reached: int | None) -> LogNotice:
    text = f"No lines found {_back(reached)}; older lines were not searched."
    return LogNotice("limit", text, "Load older lines or narrow the time range.")


def no_match(query: LogQuery, known: LogLabels) -> LogNotice | None:
    """Returns the notice for selected labels that no line has; None if all exist."""
    absent = [name for name, values in query.labels if not values & set(known.values.get(name, ()))]
    if not absent:
        return None
    first = list(known.values.items())[:LABELS_SHOWN]
    shown = {name: list(values)[:LABELS_SHOWN] for name, values in first}
    text = f"No line has the selected value of {', '.join(absent)}."
    return LogNotice("no-match", text, "Existing values:" if shown else "There are no lines yet.", labels=shown)


def _back(reached: int | None) -> str:
    if reached is None:
        return "so far"
    at = datetime.fromtimestamp(reached / 10**9, UTC)
    return f"back to {at:%Y-%m-%d %H:%M:%S} UTC"


class SourceFailures:
    """Failures of one source in one task; reports each failure once, and the recovery once."""

    def __init__(self) -> None:
        self.note: LogNotice | None = None  # the current failure
        self._failures = 0

    def failed(self, failure: Exception) -> LogNotice | None:
        """Counts a failure; returns its notice, or None if it is the same as before."""
        if not isinstance(failure, UnstallError | TimeoutError):
            log.error("a log source failed", exc_info=failure)
        self._failures += 1
        note = failure_notice(failure)
        if note.is_as(self.note):
            return None
        self.note = note
        return note

    def well(self) -> LogNotice | None:
        self._failures = 0
        if self.note is None:
            return None
        self.note = None
        return LogNotice("recovered", "The source is available again.")

    def pause(self) -> float:
        """Returns the seconds until the next try, with jitter."""
        longest: float = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(self._failures - 1, 10))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 -- jitter


def failure_notice(failure: Exception) -> LogNotice:
    if isinstance(failure, StoreError):
        return LogNotice("trouble", str(failure), failure.advice)
    if isinstance(failure, UnstallError):
        return LogNotice("trouble", str(failure))
    if isinstance(failure, TimeoutError):
        return LogNotice("trouble", "The source does not answer in time.", "It is retried automatically.")
    text = f"The source cannot be read: unexpected {type(failure).__name__}."
    return LogNotice("trouble", text, "See the log of the web process.")
