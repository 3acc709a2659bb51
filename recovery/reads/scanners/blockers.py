"""Reports what blocks a scanner at one queue now; used by the scanner before each step, and by predictions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import Literal

from django.db import Error

from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.queues.types import Snapshot
from recovery.domain.scanners.blockers import Blocker, ScannerBlock
from recovery.domain.scanners.types import ScannerKind
from recovery.errors import ConfigError, StoreError
from recovery.models import ScannerPause
from recovery.reads.safety_limits import queries as safety_limits_queries
from recovery.reads.safety_limits.queries import DeploymentRedisPause
from recovery.reads.scanners import rights_refusals, scheduler_status
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.stores.registry import ConnectionRegistry

# A scanner about to act knows these better: from its leader token, from the pause of the deployment, which asks the
# store itself, and because it retries refused changes now and then.
KNOWN_TO_ACTOR = frozenset(
    {Blocker.STATE, Blocker.NO_LEADER, Blocker.CONSOLE, Blocker.SILENT, Blocker.REFUSED, Blocker.REDIS_PAUSE}
)


class ScannerBlockers:
    """Blockers at one moment: each store is read once, on first use. `snapshot` tells which deployments answered."""

    def __init__(self, registry: ConnectionRegistry, now: int, snapshot: Snapshot | None = None) -> None:
        self._config = registry.config
        self._registry = registry
        self._now = now
        self._snapshot = snapshot

    def of(self, scan: ScannerKind, queue: QueueRef, *, without: Collection[Blocker] = ()) -> Iterator[ScannerBlock]:
        """Yields what blocks this scanner at this queue, in the order of `Blocker`. Raises DeploymentMissing."""
        for blocker in Blocker:
            if blocker not in without and (why := _ASKED[blocker](self, scan, queue)):
                ends = self._redis_pause_ends(queue.deployment) if blocker is Blocker.REDIS_PAUSE else None
                yield ScannerBlock(blocker, queue.deployment, why, ends)

    def read_only(self, _scan: ScannerKind, queue: QueueRef) -> str:
        name = queue.deployment
        is_read_only = self._config.deployment(name).read_only
        return f"The deployment {printable(name)} is configured to be read only." if is_read_only else ""

    def state(self, _scan: ScannerKind, _queue: QueueRef) -> str:
        return "The leader is unknown." if self._unled is Blocker.STATE else ""

    def no_leader(self, _scan: ScannerKind, _queue: QueueRef) -> str:
        return "No scheduler leads." if self._unled is Blocker.NO_LEADER else ""

    def console(self, _scan: ScannerKind, queue: QueueRef) -> str:
        others = self._sign.consoles if self._sign else ()
        return next((one.words for one in others if one.acts and one.deployment == queue.deployment), "")

    def silent(self, _scan: ScannerKind, queue: QueueRef) -> str:
        sample = self._snapshot.deployment(queue.deployment) if self._snapshot else None
        return f"{printable(sample.name)} does not answer: {sample.error}." if sample and sample.error else ""

    def database(self, _scan: ScannerKind, _queue: QueueRef) -> str:
        return (
            f"Nothing is changed: the safety limits cannot be read from the database ({self._fault})."
            if self._fault
            else ""
        )

    def paused(self, scan: ScannerKind, _queue: QueueRef) -> str:
        return _paused(self._pauses.get(scan.value)) if not self._fault else ""

    def refused(self, _scan: ScannerKind, queue: QueueRef) -> str:
        found = rights_refusals.refusal_of_queue(queue, self._refusals)
        return rights_refusals.words(queue, found) if found else ""

    def redis_pause(self, _scan: ScannerKind, queue: QueueRef) -> str:
        found = None if self._fault else self._redis_pauses.get(queue.deployment)
        return " ".join(found.words) if found else ""

    def _redis_pause_ends(self, deployment: str) -> int | None:
        """Returns when the pause of this deployment ends; None: only a person ends it."""
        ends = [hold.until for hold in self._redis_pauses[deployment].holds]
        return max((end for end in ends if end is not None), default=None) if None not in ends else None

    @cached_property
    def _unled(self) -> Blocker | None:
        """Returns NO_LEADER if no scheduler leads, STATE if that is unknown; None if a scheduler leads."""
        is_led = None if self._sign is None else scheduler_status.is_led(self._sign or None)
        if is_led is None:
            return Blocker.STATE
        return None if is_led else Blocker.NO_LEADER

    @cached_property
    def _sign(self) -> SchedulerStatus | Literal[False] | None:
        """Status of the scheduler that feeds the pages; False: there is none. None: it cannot be read."""
        try:
            return scheduler_status.fetch(self._registry.state()) or False
        except (ConfigError, StoreError):
            return None

    @cached_property
    def _refusals(self) -> rights_refusals.RightsRefusals:
        try:
            return rights_refusals.fetch(self._registry.state())
        except (ConfigError, StoreError):
            return {}

    @cached_property
    def _fault(self) -> str:
        """Class name of the database's error; "" while the database answers."""
        try:
            _ = self._pauses, self._redis_pauses
        except Error as error:
            return type(error).__name__
        return ""

    @cached_property
    def _pauses(self) -> Mapping[str, ScannerPause]:
        return {row.scanner: row for row in ScannerPause.objects.all()}

    @cached_property
    def _redis_pauses(self) -> Mapping[str, DeploymentRedisPause]:
        return {
            one.deployment: one for one in safety_limits_queries.redis_pauses(self._now, self._config) if one.is_holding
        }


def pause_reason(scan: ScannerKind) -> str:
    """Says who paused the scanner and why; "" if it is not paused. Raises Error."""
    return _paused(ScannerPause.objects.filter(pk=scan.value).first())


def _paused(row: ScannerPause | None) -> str:
    if row is None:
        return ""
    because = f": {printable(row.reason)}" if row.reason else "."
    return f"{row.scanner.capitalize()} is paused by {printable(row.by)}{because}"


_ASKED: Mapping[Blocker, Callable[[ScannerBlockers, ScannerKind, QueueRef], str]] = {
    Blocker.READ_ONLY: ScannerBlockers.read_only,
    Blocker.STATE: ScannerBlockers.state,
    Blocker.NO_LEADER: ScannerBlockers.no_leader,
    Blocker.CONSOLE: ScannerBlockers.console,
    Blocker.SILENT: ScannerBlockers.silent,
    Blocker.DATABASE: ScannerBlockers.database,
    Blocker.PAUSED: ScannerBlockers.paused,
    Blocker.REFUSED: ScannerBlockers.refused,
    Blocker.REDIS_PAUSE: ScannerBlockers.redis_pause,
}
