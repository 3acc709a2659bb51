"""Computes the gate states in this process from the same samples as the leader, so that no leader is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recovery.config.gate import GateConfig
from recovery.domain.gate.state_machine import Gate, GateSample, fold, resume_gate
from recovery.domain.servers.samples import Server
from recovery.gate import queries as gate_queries


@dataclass(frozen=True, slots=True)
class StoredServerSample:
    """Server as the state store returned it; the TTLs are in ms, negative if the key does not exist."""

    server: Server
    ttl: int  # of its sample
    settling: int  # of the key that records an admission

    def sample(self, now: int) -> GateSample:
        return GateSample.of(self.server, gate_queries.seen_at(self.server.sampled_at, self.server.poll, self.ttl, now))


def fold_gates(
    before: Mapping[str, Gate],
    stored: Mapping[str, Gate],
    seen: Iterable[StoredServerSample],
    gating: GateConfig,
    now: int,
) -> dict[str, Gate]:
    """Returns the gates after this read, without those of servers that are gone."""
    return {one.server.id: _gate(before.get(one.server.id), stored, one, gating, now) for one in seen}


def _gate(
    before: Gate | None, stored: Mapping[str, Gate], seen: StoredServerSample, gating: GateConfig, now: int
) -> Gate:
    id, sample, terms = seen.server.id, seen.sample(now), gating.terms_of(seen.server.id)
    gate = fold(resume_gate(before, stored.get(id), sample), id, sample, terms, now)
    admitted = now - max(0, terms.settling(sample.poll) - seen.settling) if seen.settling >= 0 else None
    known = [at for at in (admitted, before.admitted_at if before else None) if at is not None and at <= now]
    return gate.admitting(max(known, default=None))
