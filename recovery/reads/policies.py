"""Reads the policies: those of the configuration file together with those edited on the page.

An edit that this version cannot read may forbid something, so all queues that it covers get dry runs only.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from django.db import Error

from recovery.config import Config
from recovery.domain import policies, policy_text
from recovery.domain.policies import Layer, Origin, Resolved, Source
from recovery.domain.refs import QueueRef, shown, slug, unslug
from recovery.errors import Problem
from recovery.models import PolicyLayer

Place = tuple[str, str]  # deployment and base, "" for any
LIFE = 1.0  # seconds: an operator who switches something off does not want to wait longer
_GARBLED = Problem("written", "is not a table.", "Edit it again; its current value is lost.")


@dataclass(frozen=True, slots=True)
class Edited:
    """Stored edit of a policy. With `problems` it is not used."""

    origin: Origin
    written: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def place(self) -> Place:
        return self.origin.deployment, self.origin.base

    @property
    def trouble(self) -> str:
        """Returns why all queues that it covers get dry runs only; "" if the edit can be read."""
        if not self.problems:
            return ""
        where = shown(self.origin.base) or self.origin.deployment or "all queues"
        more = f" and {len(self.problems) - 1:,} more" if len(self.problems) > 1 else ""
        return f"The edited policy for {where} cannot be read, so no scanner acts: {self.problems[0]}{more}"


@dataclass(frozen=True, slots=True)
class Book:
    """All policy layers at one moment. `unread`: the edits that this version cannot use."""

    layers: tuple[Layer, ...] = ()
    unread: tuple[Edited, ...] = ()
    _at: Mapping[Place, tuple[Layer, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Groups the layers by place: each pass resolves the policy of each queue, from four places at most."""
        found: dict[Place, tuple[Layer, ...]] = {}
        for layer in self.layers:
            place = (layer.origin.deployment, layer.origin.base)
            found[place] = (*found.get(place, ()), layer)
        object.__setattr__(self, "_at", found)

    @classmethod
    def open(cls, config: Config) -> Book:
        """Reads all edits from the database, with one query."""
        return cls.of_rows(config, edited())

    @classmethod
    def of_rows(cls, config: Config, rows: Iterable[Edited], more: Iterable[Layer] = ()) -> Book:
        """Builds the policies from these edits, and from layers that are not stored yet."""
        rows = tuple(rows)
        return cls((*config.policies, *layers(rows), *more), tuple(row for row in rows if row.problems))

    @property
    def trouble(self) -> tuple[str, ...]:
        return tuple(row.trouble for row in self.unread)

    def of(self, queue: QueueRef) -> Resolved:
        places = (("", ""), (queue.deployment, ""), ("", queue.base), (queue.deployment, queue.base))
        found = policies.resolved((layer for place in places for layer in self._at.get(place, ())), queue)
        for row in self.unread:
            if row.origin.is_for(queue):
                found = policies.withheld(found, row.origin, row.trouble)
        return found


class Following:
    """Policies that are read again once they are older than `life` seconds, so that a long run notices an edit.

    While the database is unavailable the last ones count: without the audit no action is possible anyway.
    """

    def __init__(self, config: Config, life: float = LIFE, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._life = life
        self._clock = clock
        self._book = Book.open(config)
        self._until = clock() + life

    def of(self, queue: QueueRef) -> Resolved:
        return self.book.of(queue)

    @property
    def book(self) -> Book:
        if self._clock() >= self._until:
            with suppress(Error):
                self._book = Book.open(self._config)
            self._until = self._clock() + self._life
        return self._book


def edited() -> tuple[Edited, ...]:
    """Reads the edits made on the page: first for all queues, then for deployments, then for single queues."""
    return tuple(sorted(map(_edited, PolicyLayer.objects.all()), key=lambda row: (row.origin.rank, row.place)))


def written(deployment: str, base: str) -> dict[str, Any]:
    """Returns the edit of one place, in the words of policy_text, for a form; empty if there is none."""
    row = PolicyLayer.objects.filter(deployment=deployment, base=column(base)).first()
    return dict(_edited(row).written) if row else {}


def layers(rows: Iterable[Edited]) -> tuple[Layer, ...]:
    """Returns the layers of the usable edits."""
    return tuple(Layer(row.origin, policy_text.read(row.written)[0]) for row in rows if not row.problems)


def column(base: str) -> str:
    """Returns a base as the table holds it; "" stands for all queues."""
    return slug(base) if base else ""


def _edited(row: PolicyLayer) -> Edited:
    base, problems = _base(row.base)
    origin = Origin(Source.PAGE, row.deployment, base, row.by, row.at)
    try:
        written = json.loads(row.written)
    except (ValueError, RecursionError):
        return Edited(origin, problems=(_GARBLED,))
    if not isinstance(written, dict):
        return Edited(origin, problems=(_GARBLED,))
    return Edited(origin, written, (*problems, *policy_text.read(written)[1]))


def _base(written: str) -> tuple[str, tuple[Problem, ...]]:
    """Decodes a stored base. An unreadable name may be any queue of the deployment: it counts for all of them."""
    try:
        return (unslug(written) if written else ""), ()
    except ValueError:
        return "", (Problem(written, "is not a queue name.", "Remove that row."),)
