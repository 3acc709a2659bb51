"""Parses the filter language of the queue table: words, and `state:`, `workers:`, `deployment:`, `flavour:`.

A word with a colon that is none of these is a name like any other (`bull:mail`). A leading minus negates a term.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recovery.domain.identifiers import printable
from recovery.domain.queues.health import ready
from recovery.domain.queues.types import QueueSample

FILTER_LIMIT = 200  # characters of a filter; longer ones are not typed by people

STATES: dict[str, Callable[[QueueSample], bool | None]] = {
    "waiting": lambda sample: _some(ready(sample.counts)),
    "active": lambda sample: _some(sample.counts.active),
    "prioritized": lambda sample: _some(sample.counts.prioritized),
    "delayed": lambda sample: _some(sample.counts.delayed),
    "waiting-children": lambda sample: _some(sample.counts.waiting_children),
    "completed": lambda sample: _some(sample.counts.completed),
    "failed": lambda sample: _some(sample.counts.failed),
    "paused": lambda sample: sample.is_paused,
    "unreadable": lambda sample: bool(sample.error),
}
WORKERS: dict[str, Callable[[QueueSample], bool]] = {
    "none": lambda sample: sample.workers == 0,
    "some": lambda sample: bool(sample.workers),
    "unknown": lambda sample: sample.workers is None,
}
_VALUES = {"state": tuple(STATES), "workers": tuple(WORKERS)}


@dataclass(frozen=True, slots=True)
class QueueFilterTerm:
    """Word of the filter; `key` is "" for plain text."""

    key: str
    value: str
    negated: bool = False

    def holds(self, sample: QueueSample) -> bool:
        return _MATCHERS[self.key](sample, self.value) is not self.negated


@dataclass(frozen=True, slots=True)
class QueueFilter:
    """Parsed filter; all terms must match. `problem` says which terms could not be understood."""

    terms: tuple[QueueFilterTerm, ...] = ()
    problem: str = ""

    def holds(self, sample: QueueSample) -> bool:
        return all(term.holds(sample) for term in self.terms)


def parse(written: str) -> QueueFilter:
    terms = tuple(_term(word) for word in written[:FILTER_LIMIT].split())
    problems = [problem for term in terms if (problem := _problem(term))]
    return QueueFilter(terms, " ".join(problems))


def _term(word: str) -> QueueFilterTerm:
    negated = len(word) > 1 and word.startswith("-")
    word = word.removeprefix("-") if negated else word
    key, colon, value = word.partition(":")
    if colon and key.lower() in _MATCHERS and key:
        return QueueFilterTerm(key.lower(), value.lower(), negated)
    return QueueFilterTerm("", word.lower(), negated)


def _problem(term: QueueFilterTerm) -> str:
    known = _VALUES.get(term.key, ())
    if not known or term.value in known:
        return ""
    return f"“{term.key}:{term.value}” is not known; {term.key} is one of {', '.join(known)}."


def _some(count: int | None) -> bool:
    return bool(count)


def _text(sample: QueueSample, value: str) -> bool:
    return value in sample.ref.label.lower()


def _state(sample: QueueSample, value: str) -> bool:
    check = STATES.get(value)
    return check is not None and bool(check(sample))


def _workers(sample: QueueSample, value: str) -> bool:
    check = WORKERS.get(value)
    return check is not None and check(sample)


def _deployment(sample: QueueSample, value: str) -> bool:
    return printable(sample.ref.deployment).lower() == value


def _flavour(sample: QueueSample, value: str) -> bool:
    """Matches `flavour:bull`, `flavour:bullmq`, `flavour:bullmq-5`, `flavour:unknown`."""
    library, major = sample.flavour.library.value, sample.flavour.major
    return value in (library, f"{library}-{major}", sample.flavour.label.lower().replace(" ", "-"))


_MATCHERS: dict[str, Callable[[QueueSample, str], bool]] = {
    "": _text,
    "state": _state,
    "workers": _workers,
    "deployment": _deployment,
    "flavour": _flavour,
}
