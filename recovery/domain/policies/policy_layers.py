"""Resolves which policy a queue has, and where each value of it comes from.

Values are laid over each other: the defaults, then the file's values for all queues, then the edits for all queues on
the page; after that the same for the queue alone. So the page wins over the file, and one queue over all. Only the
never-list adds up: what the file forbids, no edit allows. An entry of the backoff table is one value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from recovery.domain.auto_retry.backoff import ANY, Backoff, Backoffs
from recovery.domain.auto_retry.rules import NeverRetry
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.policies.types import Policy, PolicyScanner, ScannerMode, ScannerPolicy
from recovery.domain.time_units import age

Path = tuple[str, ...]  # ("stale_check", "after"), ("backoff", "mail"), ("never", "names", "pay"), ("idempotency",)
DUTY = ("mode", "after", "most", "release")
BACKOFF, NEVER, NAMES, SIGNATURES, NOTE = "backoff", "never", "names", "signatures", "idempotency"


class PolicySource(IntEnum):
    """Source of a policy value; later ones win."""

    DEFAULT = 0
    FILE = 1
    PAGE = 2


@dataclass(frozen=True, slots=True)
class PolicyValueOrigin:
    """Origin of a value. `deployment` "" is any, `base` "" all queues; `by` and `at` belong to an edit."""

    source: PolicySource = PolicySource.DEFAULT
    deployment: str = ""
    base: str = ""
    by: str = ""
    at: int | None = None

    def words(self, now: int) -> str:
        where = f"for {printable(self.base)}" if self.base else "for all queues"
        where += f" of {printable(self.deployment)}" if self.deployment and not self.base else ""
        match self.source:
            case PolicySource.DEFAULT:
                return "by default"
            case PolicySource.FILE:
                return f"in the file, {where}"
        since = "" if self.at is None else f" {age(now - self.at)} ago"
        return f"edited by {printable(self.by) or 'an unknown user'}{since}, {where}"

    def is_for(self, queue: QueueRef) -> bool:
        return self.base in ("", queue.base) and self.deployment in ("", queue.deployment)

    @property
    def rank(self) -> tuple[bool, bool, PolicySource]:
        """Returns the rank: one queue before all of a deployment before all; in between, the page before the file."""
        return bool(self.base), bool(self.deployment), self.source


@dataclass(frozen=True, slots=True)
class LayerValues:
    """Values that one origin sets; the others are inherited."""

    origin: PolicyValueOrigin
    values: Mapping[Path, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResolvedPolicy:
    """Policy of a queue, with origins of values that are no default. `withheld`: why nothing acts in any mode."""

    policy: Policy = field(default_factory=Policy)
    origins: Mapping[Path, PolicyValueOrigin] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()

    def origin(self, *path: str) -> PolicyValueOrigin:
        return self.origins.get(path, PolicyValueOrigin())

    def sentence(self, scanner: PolicyScanner, now: int) -> str:
        """Returns what a scanner may do here and who set that, for the audit and the list of its findings."""
        if self.withheld:
            return " ".join(self.withheld)
        said = self.policy.words(scanner)[0].rstrip(".")
        return f"{said} ({self.origin(scanner.field, 'mode').words(now)})."


def resolve_policy(layers: Iterable[LayerValues], queue: QueueRef) -> ResolvedPolicy:
    """Resolves the policy of a queue. Of two layers of one rank the later one wins."""
    values: dict[Path, Any] = {}
    origins: dict[Path, PolicyValueOrigin] = {}
    for layer in sorted((layer for layer in layers if layer.origin.is_for(queue)), key=lambda one: one.origin.rank):
        for path, value in layer.values.items():
            if path[0] == NEVER and path in values:
                continue  # the first layer that forbids it counts
            values[path], origins[path] = value, layer.origin
    return ResolvedPolicy(_built(values), origins)


def withhold_actions(found: ResolvedPolicy, origin: PolicyValueOrigin, why: str) -> ResolvedPolicy:
    """Returns the policy with every scanner in dry run: a part that cannot be read may forbid actions."""
    policy, origins = found.policy, dict(found.origins)
    duties: dict[str, Any] = {
        one.field: replace(policy.duty(one), mode=ScannerMode.DRY_RUN, release=False) for one in PolicyScanner
    }
    for scanner in PolicyScanner:
        origins |= {(scanner.field, name): origin for name in ("mode", "release")}
    return ResolvedPolicy(replace(policy, **duties), origins, (*found.withheld, why))


def changes(before: Policy, after: Policy) -> tuple[str, ...]:
    """Returns what an edit changed, one sentence each, for the audit."""
    old, new = _said(before), _said(after)
    return tuple(
        f"{what}: {old.get(what, 'nothing')} → {new.get(what, 'nothing')}"
        for what in dict.fromkeys((*old, *new))
        if old.get(what) != new.get(what)
    )


def _built(values: Mapping[Path, Any]) -> Policy:
    default = Policy()
    duties = {scanner.field: _duty(values, scanner, default.duty(scanner)) for scanner in PolicyScanner}
    table = {path[1]: value for path, value in values.items() if path[0] == BACKOFF}
    backoffs = Backoffs(table.pop(ANY, Backoff()), table)
    never = NeverRetry(_entries(values, NAMES), _entries(values, SIGNATURES))
    return Policy(**duties, backoffs=backoffs, never=never, idempotency=values.get((NOTE,), ""))


def _duty(values: Mapping[Path, Any], scanner: PolicyScanner, default: ScannerPolicy) -> ScannerPolicy:
    return ScannerPolicy(**{name: values.get((scanner.field, name), getattr(default, name)) for name in DUTY})


def _entries(values: Mapping[Path, Any], kind: str) -> frozenset[str]:
    return frozenset(path[2] for path in values if path[:2] == (NEVER, kind))


def _said(policy: Policy) -> dict[str, str]:
    said = {scanner.value: policy.duty(scanner).words for scanner in PolicyScanner}
    said |= {f"{BACKOFF} {printable(name)}": backoff.words for name, backoff in sorted(policy.backoffs.by_name.items())}
    said[f"{BACKOFF} {ANY}"] = policy.backoffs.default.words
    said |= {f"never name {printable(name)}": "forbidden" for name in sorted(policy.never.names)}
    said |= {f"never signature {printable(entry)}": "forbidden" for entry in sorted(policy.never.signatures)}
    if policy.idempotency.strip():
        said[NOTE] = f"“{printable(policy.idempotency.strip())}”"
    return said
