"""What a machine token may do: scopes, each for one kind of call, none of them a part of another."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """In the order in which they are offered. A token has exactly the scopes that it was given."""

    READ = "read"
    PAYLOADS = "read:payloads"
    ACT = "act"
    BULK = "bulk"
    AUDIT = "audit"
    GATE = "gate"
    ONCE = "once"
    METRICS = "metrics"

    @property
    def may(self) -> str:
        return _MAY[self]


_MAY = {
    Scope.READ: "sees queues, jobs and what is stuck, with payloads redacted",
    Scope.PAYLOADS: "sees payloads as they are; goes with read",
    Scope.ACT: "acts on one job at a time; with bulk on several, and on queues",
    Scope.BULK: "orders runs over many jobs, watches them, stops them; edits policies, runs scanners",
    Scope.AUDIT: "reads the audit",
    Scope.GATE: "asks the gate of a server whether heavy work may start, and nothing else",
    Scope.ONCE: "claims work that must not run twice, renews, completes and releases it; sees such claims",
    Scope.METRICS: "scrapes /metrics, and nothing else",
}


def parse(written: str) -> frozenset[Scope]:
    """As the database holds them. What this version does not know is no right."""
    known = {scope.value: scope for scope in Scope}
    return frozenset(known[word] for word in written.split() if word in known)


def written(scopes: frozenset[Scope]) -> str:
    return " ".join(scope.value for scope in Scope if scope in scopes)
