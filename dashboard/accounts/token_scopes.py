"""Defines the scopes of machine tokens, each for one kind of call, none of them a part of another."""

from __future__ import annotations

from enum import StrEnum


class TokenScope(StrEnum):
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
    TokenScope.READ: "views queues, jobs and what is stuck; payload values are hidden",
    TokenScope.PAYLOADS: "reveals payload values, each time with an entry in the audit log; needs read too",
    TokenScope.ACT: "acts on one job at a time; with bulk also on several jobs and on queues",
    TokenScope.BULK: "starts, watches and stops bulk runs; edits policies; runs scanners",
    TokenScope.AUDIT: "reads the audit log",
    TokenScope.GATE: "asks the gate whether heavy work may start on a server; nothing else",
    TokenScope.IDEMPOTENCY: "claims, renews, completes, releases and lists idempotency keys",
    TokenScope.METRICS: "scrapes /metrics; nothing else",
}


def parse(written: str) -> frozenset[TokenScope]:
    """Parses scopes as the database holds them. What this version does not know is no right."""
    known = {scope.value: scope for scope in TokenScope}
    return frozenset(known[word] for word in written.split() if word in known)


def format_scopes(scopes: frozenset[TokenScope]) -> str:
    return " ".join(scope.value for scope in TokenScope if scope in scopes)
