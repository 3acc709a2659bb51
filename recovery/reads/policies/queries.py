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
from recovery.domain.identifiers import QueueRef, printable, slug, unslug
from recovery.domain.policies import parser, policy_layers
from recovery.domain.policies.policy_layers import LayerValues, PolicySource, PolicyValueOrigin, ResolvedPolicy
from recovery.errors import Problem
from recovery.models import PolicyLayer

PolicyScope = tuple[str, str]  # deployment and base, "" for any
LIFE = 1.0  # seconds: an operator who switches something off does not want to wait longer
_GARBLED = Problem("written", "is not a table.", "Edit it again; its current value is lost.")


@dataclass(frozen=True, slots=True)
class EditedPolicy:
    """Stored edit of a policy. With `problems` it is not used."""

    origin: PolicyValueOrigin
    written: Mapping[str, Any] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    @property
    def place(self) -> PolicyScope:
        return self.origin.deployment, self.origin.base

    @property
    def trouble(self) -> str:
        """Returns why all queues that it covers get dry runs only; "" if the edit can be read."""
        if not self.problems:
            return ""
        where = printable(self.origin.base) or self.origin.deployment or "all queues"
        more = f" and {len(self.problems) - 1:,} more" if len(self.problems) > 1 else ""
        return f"The edited policy for {where} cannot be read, so no scanner acts: {self.problems[0]}{more}"


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """All policy layers at one moment. `unread`: the edits that this version cannot use."""

    layers: tuple[LayerValues, ...] = ()
    unread: tuple[EditedPolicy, ...] = ()
    _at: Mapping[PolicyScope, tuple[LayerValues, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Groups the layers by place: each pass resolves the policy of each queue, from four places at most."""
        found: dict[PolicyScope, tuple[LayerValues, ...]] = {}
        for layer in self.layers:
            place = (layer.origin.deployment, layer.origin.base)
            found[place] = (*found.get(place, ()), layer)
        object.__setattr__(self, "_at", found)

    @classmethod
    def open(cls, config: Config) -> PolicySnapshot:
        """Reads all edits from the database, with one query."""
        return cls.of_rows(config, load_edits())

    @classmethod
    def of_rows(cls, config: Config, rows: Iterable[EditedPolicy], more: Iterable[LayerValues] = ()) -> PolicySnapshot:
        """Builds the policies from these edits, and from layers that are not stored yet."""
        rows = tuple(rows)
        return cls((*config.policies, *layers(rows), *more), tuple(row for row in rows if row.problems))

    @property
    def trouble(self) -> tuple[str, ...]:
        return tuple(row.trouble for row in self.unread)

    def of(self, queue: QueueRef) -> ResolvedPolicy:
        places = (("", ""), (queue.deployment, ""), ("", queue.base), (queue.deployment, queue.base))
        found = policy_layers.resolve_policy((layer for place in places for layer in self._at.get(place, ())), queue)
        for row in self.unread:
            if row.origin.is_for(queue):
                found = policy_layers.withhold_actions(found, row.origin, row.trouble)
        return found


class LivePolicies:
    """Policies that are read again once they are older than `life` seconds, so that a long run notices an edit.

    While the database is unavailable the last ones count: without the audit no action is possible anyway.
    """

    def __init__(self, config: Config, life: float = LIFE, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._life = life
        self._clock = clock
        self._book = PolicySnapshot.open(config)
        self._until = clock() + life

    def of(self, queue: QueueRef) -> ResolvedPolicy:
        return self.book.of(queue)

    @property
    def book(self) -> PolicySnapshot:
        if self._clock() >= self._until:
            with suppress(Error):
                self._book = PolicySnapshot.open(self._config)
            self._until = self._clock() + self._life
        return self._book


def load_edits() -> tuple[EditedPolicy, ...]:
    """Reads the edits made on the page: first for all queues, then for deployments, then for single queues."""
    return tuple(sorted(map(_edited, PolicyLayer.objects.all()), key=lambda row: (row.origin.rank, row.place)))


def edited_values(deployment: str, base: str) -> dict[str, Any]:
    """Returns the edit of one place, in the words of policy_text, for a form; empty if there is none."""
    row = PolicyLayer.objects.filter(deployment=deployment, base=column(base)).first()
    return dict(_edited(row).written) if row else {}


def layers(rows: Iterable[EditedPolicy]) -> tuple[LayerValues, ...]:
    """Returns the layers of the usable edits."""
    return tuple(LayerValues(row.origin, parser.read_policy(row.written)[0]) for row in rows if not row.problems)


def column(base: str) -> str:
    """Returns a base as the table holds it; "" stands for all queues."""
    return slug(base) if base else ""


def _edited(row: PolicyLayer) -> EditedPolicy:
    base, problems = _base(row.base)
    origin = PolicyValueOrigin(PolicySource.PAGE, row.deployment, base, row.by, row.at)
    try:
        written = json.loads(row.written)
    except (ValueError, RecursionError):
        return EditedPolicy(origin, problems=(_GARBLED,))
    if not isinstance(written, dict):
        return EditedPolicy(origin, problems=(_GARBLED,))
    return EditedPolicy(origin, written, (*problems, *parser.read_policy(written)[1]))


def _base(written: str) -> tuple[str, tuple[Problem, ...]]:
    """Decodes a stored base. An unreadable name may be any queue of the deployment: it counts for all of them."""
    try:
        return (unslug(written) if written else ""), ()
    except ValueError:
        return "", (Problem(written, "is not a queue name.", "Remove that row."),)
