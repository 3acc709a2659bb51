"""Retries failed jobs, slowly, and not at all while they fail again.

One run goes round the queues step by step: where the budget or a breaker says "later", the others go on meanwhile, and
the run waits as long as its time allows. `follow` tracks the retried jobs until they have ended, between runs too;
when that closes a breaker, it requests a run of that queue at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from django.db import Error

from recovery.actions import scanner_control
from recovery.actions.safety_limits import auto_retry_limits
from recovery.domain.actions.types import Action, Actor
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.n8n.detection import is_n8n
from recovery.domain.queues.types import Snapshot
from recovery.domain.scanners.types import ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.domain.time_units import MINUTE, SECOND
from recovery.errors import BadOrder, NotRecorded, StoreError, UnstallError
from recovery.reads.policies.queries import LivePolicies
from recovery.reads.queues.job_lists import Queue
from recovery.reads.scanners.forecast import action_refusal
from recovery.scanners.auto_retry import feedback
from recovery.scanners.auto_retry.queue_run import QueueAutoRetry
from recovery.scanners.orphan_watch.scanner import NO_SNAPSHOT
from recovery.scanners.runtime.readable_queues import readable_samples
from recovery.scanners.runtime.scanner_actions import BlockingReasons, ScannerActions
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql import database_clock

log = logging.getLogger(__name__)

RUN = 5 * MINUTE  # of one run: shorter than a requested run waits, and five minutes' worth of every budget
FOLLOW_EVERY = 10.0  # seconds between two checks of the retried jobs
_WAIT = 1.0  # seconds at once: a scheduler that lost its leadership has to notice
N8N = "It is an n8n job: its workflow would run again from its start. Only a person can retry it and accept that."
WELL_AGAIN = "Its probe succeeded, so the rest is retried."

WaitFunction = Callable[[float], object]


class AutoRetry:
    """Auto-retry scanner; one run at a time, `follow` beside it. `leader_token` None: unknown leader, dry runs only."""

    def __init__(
        self,
        registry: ConnectionRegistry,
        newest: Callable[[], Snapshot | None],
        leader_token: LeaderToken | None,
        holding: BlockingReasons,
        *,
        now: Callable[[], int] = database_clock.now,
        wait: WaitFunction | None = None,
    ) -> None:
        self.registry = registry
        self._newest = newest
        self._leader_token = leader_token
        self._holding = holding
        self._stopping = threading.Event()
        self.now = now
        self.wait = wait or self._stopping.wait
        self.cursors: dict[QueueRef, str] = {}  # where the next run begins

    def run(self, now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport:
        snapshot = self._newest()
        if snapshot is None:
            return ScannerReport(faults=(NO_SNAPSHOT,))
        book = LivePolicies(self.registry.config, clock=lambda: self.now() / SECOND)
        scanner_actions = ScannerActions(
            self._leader_token, ScannerKind.AUTO_RETRY, book, self._holding, dry_run=dry_run
        )
        tour = _Tour(self, scanner_actions, self.now() + RUN)
        for sample in readable_samples(snapshot, queue, tour.faults):
            tour.reached += 1
            tour.add(Queue(sample.ref, sample.flavour, sample))
        tour.go()
        return tour.report()

    def follow(self, now: int) -> int:
        """Settles retried jobs that have ended; returns how many queues had any to settle. Raises NotRecorded."""
        if self._leader_token is None or not self._leader_token.holds():
            return 0
        outs = auto_retry_limits.unsettled_retries(now=self.now())
        for ref, out in outs.items():
            try:
                if feedback.settle_queue(ref, out, self._newest(), self.now()):
                    self._go_on(ref)
            except (StoreError, Error) as error:
                log.debug("%s: %s", ref, error)  # the next check tells
        return len(outs)

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """Stops the run after its present step."""
        self._stopping.set()

    def _go_on(self, ref: QueueRef) -> None:
        """Requests a run of this queue; if the scanner is paused or enough runs wait, the next due one will do."""
        actor = Actor("scanner", ScannerKind.AUTO_RETRY.value, may_act=True, may_bulk=True)
        try:
            scanner_control.order(actor, ScannerKind.AUTO_RETRY, queue=ref, reason=WELL_AGAIN)
        except (BadOrder, NotRecorded) as error:
            log.info("%s has recovered: %s", ref, error)


class _Tour:
    """Way of one run round the queues."""

    def __init__(self, scanner: AutoRetry, scanner_actions: ScannerActions, ends: int) -> None:
        self.faults: list[str] = []
        self.reached = 0  # queues
        self._scanner = scanner
        self._scanner_actions = scanner_actions
        self._ends = ends
        self._all: dict[QueueRef, QueueAutoRetry] = {}
        self._due: dict[QueueRef, int] = {}  # when to go on with queues that are not finished

    def add(self, queue: Queue) -> None:
        if queue.sample is not None and queue.sample.counts.failed:
            ref, scanner = queue.ref, self._scanner
            why = N8N if is_n8n(ref, queue.flavour) else action_refusal(queue, Action.RETRY)
            self._all[ref] = QueueAutoRetry(
                queue, self._scanner_actions, scanner.now, cursor=scanner.cursors.get(ref, ""), never=why
            )
            self._due[ref] = 0

    def go(self) -> None:
        """Makes steps until no job can be retried any more, or the time is over."""
        try:
            while self._due and self._may_go_on():
                for ref, at in list(self._due.items()):
                    if at <= self._scanner.now() and self._may_go_on():
                        self._step(ref)
                self._rest()
        except Error as error:
            self.faults.append(f"The database is unavailable: {type(error).__name__}.")

    def report(self) -> ScannerReport:
        for ref, one in self._all.items():
            one.close()
            self._scanner.cursors[ref] = one.resume
        holds = (*self._scanner_actions.holds, *(hold for one in self._all.values() for hold in one.holds.values()))
        return ScannerReport(
            looked=sum(one.looked for one in self._all.values()),
            finds=tuple(find for one in self._all.values() for find in one.finds),
            holds=tuple(dict.fromkeys(holds)),
            faults=tuple(dict.fromkeys((*self.faults, *self._scanner_actions.faults))),
            is_refused=self._scanner_actions.is_refused,
            reached=self.reached,
        )

    def _step(self, ref: QueueRef) -> None:
        """Makes one step of a queue; an error ends only this queue."""
        try:
            at = self._all[ref].step()
        except UnstallError as error:
            self.faults.append(f"{printable(str(ref))}: {error}")
            at = None
        if at is None or at >= self._ends:
            del self._due[ref]
        else:
            self._due[ref] = at

    def _may_go_on(self) -> bool:
        stops = self._scanner.is_stopping or self._scanner_actions.is_stopped
        return not stops and self._scanner.now() < self._ends

    def _rest(self) -> None:
        """Waits until the first queue may go on."""
        left = min(self._due.values(), default=0) - self._scanner.now()
        if left > 0:
            self._scanner.wait(min(_WAIT, left / SECOND))
