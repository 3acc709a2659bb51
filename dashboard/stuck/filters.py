"""Defines the filters of the list of stuck jobs, and the badge with their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.utils.http import urlencode

from dashboard.base.url_identifiers import queue_url_ref
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.stuck.inbox import StuckInbox
from recovery.domain.stuck.types import LossCause, StuckJob, VerdictKind

QUARANTINED = "quarantined"
_NAMES = ("queue", "cause", "verdict", "server")


@dataclass(frozen=True, slots=True)
class StuckFilter:
    """Filter of the stuck jobs, from the URL; an empty field matches anything."""

    queue: str = ""  # DEPLOYMENT/BASE as addresses write it
    cause: str = ""
    verdict: str = ""  # a kind, or "quarantined"
    server: str = ""  # as it is shown, or "unknown"

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> StuckFilter:
        return cls(*(asked.get(name, "") for name in _NAMES))

    def __bool__(self) -> bool:
        return bool(self.told)

    @property
    def address(self) -> str:
        return f"?{urlencode(self.told)}" if self.told else "?"

    @property
    def told(self) -> dict[str, str]:
        """Fields that are set, by name."""
        return {name: value for name in _NAMES if (value := getattr(self, name))}

    @property
    def words(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.told.items())

    def holds(self, stuck: StuckJob) -> bool:
        verdict = stuck.verdict
        return (
            self.queue in ("", queue_url_ref(stuck.job.queue))
            and self.cause in ("", _cause(verdict.cause))
            and self.server in ("", _server(stuck))
            and (self.verdict in ("", verdict.kind.value) or (self.verdict == QUARANTINED and verdict.is_quarantined))
        )


@dataclass(frozen=True, slots=True)
class StuckCount:
    """Badge of the navigation. `count` None: not checked yet. `people`: how many of them need manual action."""

    count: int | None = None
    people: int = 0

    @classmethod
    def of(cls, found: StuckInbox | None) -> StuckCount:
        return cls() if found is None else cls(found.shown, found.people)

    @property
    def tone(self) -> str:
        """Red if some jobs need manual action, amber if all recover without."""
        return "stuck" if self.people else "warn"


@dataclass(frozen=True, slots=True)
class StuckFilterField:
    """A select of the filter."""

    name: str
    label: str
    all: str
    value: str
    values: tuple[tuple[str, str], ...]


def fields(chosen: StuckFilter, lines: Iterable[StuckJob]) -> tuple[StuckFilterField, ...]:
    """Returns the selects with the values that occur, and the chosen ones even if they do not occur now."""
    lines = tuple(lines)
    queues = Counter(line.job.queue for line in lines)
    causes = Counter(_cause(line.verdict.cause) for line in lines)
    servers = Counter(map(_server, lines))
    return (
        _field("verdict", "All verdicts", chosen.verdict, _kinds(lines)),
        _field("cause", "All causes", chosen.cause, _names(causes)),
        _field(
            "server", "All servers", chosen.server, [(name, _counted(name, servers[name])) for name in sorted(servers)]
        ),
        _field("queue", "All queues", chosen.queue, [_queue(ref, count) for ref, count in sorted(queues.items())]),
    )


def _kinds(lines: tuple[StuckJob, ...]) -> list[tuple[str, str]]:
    kinds = Counter(line.verdict.kind for line in lines)
    told = [(kind.value, _counted(kind.value, kinds[kind])) for kind in VerdictKind if kind in kinds]
    quarantined = sum(line.verdict.is_quarantined for line in lines)
    return [*told, (QUARANTINED, _counted("quarantined", quarantined))] if quarantined else told


def _names(counted: Counter[str]) -> list[tuple[str, str]]:
    return [(name, _counted(name, counted[name])) for name in sorted(counted)]


def _counted(name: str, count: int) -> str:
    return f"{name} ({count:,})"


def _queue(ref: QueueRef, count: int) -> tuple[str, str]:
    return queue_url_ref(ref), f"{ref.label} ({count:,})"


def _cause(cause: LossCause) -> str:
    return cause.value or "unknown"


def _server(stuck: StuckJob) -> str:
    return printable(stuck.server) or "unknown"


def _field(name: str, all: str, value: str, values: list[tuple[str, str]]) -> StuckFilterField:
    known = dict(values)
    if value and value not in known:
        values = [*values, (value, f"{value} (0)")]
    return StuckFilterField(name, name.capitalize(), all, value, tuple(values))
