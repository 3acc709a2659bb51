"""Checks the data of the inbox's jobs against the JSON Schema of their queue. A job is read once, and every minute
again: its data may be mended while it is stuck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from recovery.backends.base import CommandClient
from recovery.config import Config
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.stuck.context import VerdictContext
from recovery.domain.stuck.inbox import StuckTally
from recovery.domain.stuck.types import StuckJob, VerdictKind
from recovery.reads.stuck import payload_schemas
from recovery.reads.stuck.observations import JobFingerprint
from recovery.scanners.orphan_watch.assessment import AssessedJob

READ_AT_ONCE = 200  # jobs of one pass: at the limit of what is checked, 12 MB
LIFE = 60_000  # ms until a job is read again


@dataclass(frozen=True, slots=True)
class _Shape:
    """Result of one check. `breaks` is "" for valid data. `at` is when it was read."""

    signature: JobFingerprint
    at: int
    breaks: str


class PayloadChecks:
    """Results of the checks of one deployment."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._known: dict[JobRef, _Shape] = {}

    def of(self, wire: CommandClient, chosen: Sequence[AssessedJob], now: int) -> Mapping[JobRef, str]:
        """Returns what is wrong with the data of malformed jobs; raises StoreError."""
        here = {one.row.ref: one.mark.signature for one in chosen if self._is_asked(one)}
        self._known = {ref: shape for ref, shape in self._known.items() if here.get(ref) == shape.signature}
        for queue, ids in self._due(here, now).items():
            self._read(wire, queue, ids, here, now)
        return {ref: shape.breaks for ref, shape in self._known.items() if shape.breaks}

    def _is_asked(self, one: AssessedJob) -> bool:
        queue = one.row.ref.queue
        return not one.row.missing and self._config.schema_of(queue.deployment, queue.base) is not None

    def _due(self, here: Iterable[JobRef], now: int) -> dict[QueueRef, list[str]]:
        """Returns jobs to be read, by queue: new ones first, then those that were read longest ago."""
        read_at = {ref: shape.at for ref, shape in self._known.items()}
        due = sorted((ref for ref in here if now - read_at.get(ref, 0) > LIFE), key=lambda ref: read_at.get(ref, 0))
        found: dict[QueueRef, list[str]] = {}
        for ref in due[:READ_AT_ONCE]:
            found.setdefault(ref.queue, []).append(ref.id)
        return found

    def _read(
        self, wire: CommandClient, queue: QueueRef, ids: Sequence[str], here: Mapping[JobRef, JobFingerprint], now: int
    ) -> None:
        schema = self._config.schema_of(queue.deployment, queue.base)
        broken = payload_schemas.find_violations(wire, queue, ids, schema) if schema else {}
        for ref in map(queue.job, ids):
            self._known[ref] = _Shape(here[ref], now, broken.get(ref.id, ""))


def count_malformed(
    tallies: Iterable[StuckTally],
    rows: Iterable[StuckJob],
    found: Iterable[AssessedJob],
    around: Mapping[QueueRef, VerdictContext],
) -> tuple[StuckTally, ...]:
    """Recounts malformed jobs as malformed and not by their lock: no scanner recovers these."""
    bad = {row.job for row in rows if row.verdict.behind is not None}
    groups: dict[QueueRef, list[AssessedJob]] = {}
    for one in found if bad else ():
        if one.row.ref in bad:
            groups.setdefault(one.row.ref.queue, []).append(one)
    return tuple(
        _moved(tally, groups[tally.queue], around[tally.queue]) if tally.queue in groups else tally for tally in tallies
    )


def _moved(tally: StuckTally, bad: Sequence[AssessedJob], around: VerdictContext) -> StuckTally:
    kinds, ahead = Counter(tally.kinds), [(one, one.outlook(around)) for one in bad]
    kinds.subtract(one.kind for one in bad)
    kinds[VerdictKind.MALFORMED] += len(bad)
    promised = [one.kind for one, outlook in ahead if one.kind.is_lost and outlook.first is not None]
    before = tally.outlook
    return replace(
        tally,
        kinds={kind: count for kind, count in kinds.items() if count > 0},
        people=tally.people + sum(not one.needs_a_person(outlook) for one, outlook in ahead),
        outlook=replace(
            before,
            rescued=before.rescued - promised.count(VerdictKind.ABANDONED),
            promised=before.promised - len(promised),
        ),
    )
