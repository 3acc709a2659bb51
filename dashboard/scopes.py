"""Defines the scopes of machine tokens, each for one kind of call, none of them a part of another."""

from __future__ import annotations

from enum import StrEnum


class Scope(StrEnum):
    """Scope of a token, in the order in which they are offered. A token has exactly the scopes that it was given."""

    READ = "read"
    PAYLOADS = "read:payloads"
    ACT = "act"
    BULK = "bulk"
    AUDIT = "audit"
    GATE = "gate"
    IDEMPOTENCY = "idempotency"
    METRICS = "metrics"

    @property
    def may(self) -> str:
        return _MAY[self]


_MAY = {
    Scope.READ: "views queues, jobs and what is stuck; payload values are hidden",
    Scope.PAYLOADS: "reveals payload values, each time with an entry in the audit log; needs read too",
    Scope.ACT: "acts on one job at a time; with bulk also on several jobs and on queues",
    Scope.BULK: "starts, watches and stops bulk runs; edits policies; runs scanners",
    Scope.AUDIT: "reads the audit log",
    Scope.GATE: "asks the gate whether heavy work may start on a server; nothing else",
    Scope.IDEMPOTENCY: "claims, renews, completes, releases and lists idempotency keys",
    Scope.METRICS: "scrapes /metrics; nothing else",
}


def parse(written: str) -> frozenset[Scope]:
    """Parses scopes as the database holds them. What this version does not know is no right."""
    known = {scope.value: scope for scope in Scope}
    return frozenset(known[word] for word in written.split() if word in known)


def written(scopes: frozenset[Scope]) -> str:
    return " ".join(scope.value for scope in Scope if scope in scopes)
