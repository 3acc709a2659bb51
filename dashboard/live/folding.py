"""The gates in the memory of this process: folded over the samples that the leader folds too, so none is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recovery.config.gate import Gating
from recovery.domain.gate import Gate, Sample, fold, seeded
from recovery.domain.servers import Server
from recovery.reads import gates


@dataclass(frozen=True, slots=True)
class Seen:
    """One server in the answer of the state store; the times to live are in ms, negative where there is nothing."""

    server: Server
    ttl: int  # of its sample
    settling: int  # of the mark that a heavy job was let in

    def sample(self, now: int) -> Sample:
        return Sample.of(self.server, gates.seen_at(self.server.sampled_at, self.server.poll, self.ttl, now))


def folded(
    before: Mapping[str, Gate], stored: Mapping[str, Gate], seen: Iterable[Seen], gating: Gating, now: int
) -> dict[str, Gate]:
    """The gates after this look. Of a server that is gone nothing is left."""
    return {one.server.id: _gate(before.get(one.server.id), stored, one, gating, now) for one in seen}


def _gate(before: Gate | None, stored: Mapping[str, Gate], seen: Seen, gating: Gating, now: int) -> Gate:
    id, sample, terms = seen.server.id, seen.sample(now), gating.terms_of(seen.server.id)
    gate = fold(seeded(before, stored.get(id), sample), id, sample, terms, now)
    admitted = now - max(0, terms.settling(sample.poll) - seen.settling) if seen.settling >= 0 else None
    known = [at for at in (admitted, before.admitted_at if before else None) if at is not None and at <= now]
    return gate.admitting(max(known, default=None))
