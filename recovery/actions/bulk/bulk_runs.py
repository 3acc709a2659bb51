"""Actions on many jobs: requested here, executed by the scheduler in chunks, and each chunk through the runner.

A run is a row of the database. It survives the page, the request and a restart; the process that executes it renews its
`beat_at`.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from django.db import Error, transaction

from recovery.actions import precheck, runner
from recovery.actions.audit import audit_log
from recovery.actions.bulk.executor import BlockedByConsole, BulkRunBlocked, RecordedJobs, execute_run
from recovery.actions.bulk.job_selection import ONE_BY_ONE, BulkSelection
from recovery.actions.bulk.run_lock import BulkRunLock, BulkRunTaken
from recovery.actions.bulk.run_rows import FAILED, NOTE, OPEN, STOPPED, WAITING, put
from recovery.actions.catalog import ENTRIES
from recovery.config import Deployment
from recovery.config.databases import Database
from recovery.domain.actions.types import Action, ActionCommand, Actor
from recovery.domain.audit.hash_chain import canonical
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.errors import (
    BadOrder,
    DeploymentMissing,
    Fenced,
    Forbidden,
    NotRecorded,
    QueueMissing,
    StoreError,
    Unsupported,
)
from recovery.models import BulkRun
from recovery.stores.redis.client import StoreClient
from recovery.stores.registry import ConnectionRegistry, open_wire

# -- throttle
# Throttles a bulk run: rests between its chunks, longer ones while the store answers others slowly.


REST = 0.0005  # seconds between two chunks: other clients of the store get in between
SLOW_MS = 5.0  # a PING that takes so much longer than the best one: other clients wait too, perhaps because of us
JITTER = 0.25  # of the best one: over a long way the times differ by more
BASELINE = 100  # PINGs among which the best is sought: a store that is slow in all is far away, or not slowed by us
LOOKS = 2  # PINGs, of which the quicker counts: a busy machine delays one now and then, a busy store delays all
LONGEST = 1.0  # seconds: however slow it is, a run goes on
LOOK_EVERY = 0.1  # seconds between two looks: far away each is a round trip in which nothing else is done


class ChunkDelay:
    """Computes a rest from latencies alone. A distant store is not a slow one: the best of late is what it can do."""

    def __init__(self) -> None:
        self._known: deque[float] = deque(maxlen=BASELINE)
        self._rest = REST

    def after(self, latency: float) -> float:
        """Returns the seconds to rest after a PING that took so many milliseconds."""
        self._known.append(latency)
        best = min(self._known)
        if latency > best * (1 + JITTER) + SLOW_MS:
            self._rest = min(LONGEST, self._rest * 2)
        else:
            self._rest = max(REST, self._rest / 2)
        return self._rest


class BulkThrottle:
    """Measures latency on a connection of its own, as another client sees it. Call `close` when the run is over.

    A SQL database serves many at once, so it is not asked: only its own worker waits for a row that we change.
    """

    def __init__(self, place: Deployment | Database) -> None:
        self._wire = open_wire(place) if isinstance(place, Deployment) else None
        self._rests = ChunkDelay()
        self._looked, self._rest = 0.0, 0.0

    def rest(self) -> float:
        """Returns the seconds to wait now. Raises StoreError."""
        if self._rest > REST or time.monotonic() - self._looked >= LOOK_EVERY:
            self._rest = self._rests.after(self.latency())
            self._looked = time.monotonic()
        return self._rest

    def latency(self) -> float:
        """Returns the milliseconds that the slowest node takes to answer."""
        wire = self._wire
        return max(min(_asked(wire, node) for _ in range(LOOKS)) for node in wire.nodes()) if wire else 0.0

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()


def _asked(wire: StoreClient, node: str) -> float:
    began = time.perf_counter()
    wire.at(node, [(b"PING",)])
    return (time.perf_counter() - began) * 1000


# -- bulk runs


__all__ = ["BulkRunner", "BulkSelection", "order", "resume", "stop"]

log = logging.getLogger(__name__)

EVERY = 0.25  # seconds between two polls for new runs, and before a long one continues
SLICE = 2.0  # seconds a run has before the next one gets its turn
RUN = 10.0  # seconds of slices before `run` returns, so that errors are reported
HOLD, LONGEST_HOLD = 2.0, 30.0  # seconds until a run that cannot continue is tried again


def order(wanted: ActionCommand, selection: BulkSelection | None = None) -> BulkRun:
    """Creates a bulk run; the scheduler begins within a second.

    Either the jobs that were shown, or a selection; a clean or a drain has neither. Raises Forbidden, BadOrder,
    Unsupported, Missing, StoreError and NotRecorded.
    """
    wanted = runner.validate_bulk_order(wanted)
    entry = ENTRIES[wanted.act]
    if entry.is_for_queue and not entry.in_steps:
        raise BadOrder(f"{entry.label} runs immediately, not in bulk.")
    if entry.in_steps == (bool(wanted.jobs) or selection is not None):
        raise BadOrder("List the jobs, or give a selection." if not entry.in_steps else "It selects its jobs itself.")
    if selection is not None:
        wanted = replace(wanted, options=selection.implied(wanted.options))
    context = precheck.build_context(wanted.queue, wanted.act)
    if selection is not None and context.queue.flavour.library is QueueLibrary.N8N:
        raise Unsupported(ONE_BY_ONE)
    try:
        with transaction.atomic():
            run = _written(wanted, selection)
            put(run, wanted.jobs)
            audit_log.note(wanted.actor, NOTE, wanted.reason, _told(run, selection), wanted.queue)
            return run
    except Error as error:
        raise NotRecorded(
            f"The database could not store the run, so nothing was changed: {type(error).__name__}."
        ) from error


def stop(run: int, actor: Actor) -> bool:
    """Requests the end of a run after the current chunk; returns False if it has ended already. Raises Forbidden."""
    _allowed(run, actor)
    asked = BulkRun.objects.filter(pk=run, status__in=OPEN, wants_stop=False).update(wants_stop=True)
    if asked:
        audit_log.note(actor, NOTE, f"Stop run {run}.", {"run": run})
    return bool(asked)


def resume(run: int, actor: Actor) -> bool:
    """Resumes a stopped run with what is left of it; returns False if it is not stopped. Raises Forbidden."""
    _allowed(run, actor)
    stopped = BulkRun.objects.filter(pk=run, status=STOPPED)
    asked = stopped.update(status=WAITING, wants_stop=False, ended_at=None, trouble="")
    if asked:
        audit_log.note(actor, NOTE, f"Resume run {run}.", {"run": run})
    return bool(asked)


def _allowed(run: int, actor: Actor) -> None:
    """Raises Forbidden unless the actor may order such a run: the same right stops and resumes it."""
    for act in BulkRun.objects.filter(pk=run).values_list("act", flat=True):
        entry = ENTRIES[Action(act)]
        runner.require(actor, f"{entry.label} in bulk", entry.right(many=True))


def _written(wanted: ActionCommand, selection: BulkSelection | None) -> BulkRun:
    return BulkRun.objects.create(
        created_at=precheck.now(),
        act=wanted.act,
        deployment=wanted.queue.deployment,
        base=wanted.queue.slug,
        actor=canonical(asdict(wanted.actor)),
        reason=wanted.reason,
        options=canonical(asdict(replace(wanted.options, is_late=False, affected=None))),
        selection=canonical(selection.as_json() if selection else {}),
        total=len(wanted.jobs),
    )


def _told(run: BulkRun, selection: BulkSelection | None) -> dict[str, Any]:
    told: dict[str, Any] = {"run": run.pk, "act": run.act, "options": json.loads(run.options)}
    return told | ({"selection": selection.as_json()} if selection else {"jobs": run.total})


class BulkRunner:
    """Executes open bulk runs, one thread at a time; ends after a chunk, on `stop` or without its leader token.

    Actions under a leader token are fenced by its epoch. Without one they run under no leadership.
    """

    def __init__(self, registry: ConnectionRegistry, leader_token: LeaderToken | None = None) -> None:
        self._registry = registry
        self._leader_token = leader_token
        self._may = leader_token.holds if leader_token else always_leader
        self._stopping = threading.Event()
        self._held: dict[int, tuple[float, float]] = {}  # run → (when it is tried again, length of the delay)
        self._paces: dict[str, BulkThrottle] = {}
        self._found: dict[int, RecordedJobs] = {}

    def run(self, _now: int) -> int:
        """Works on every open run in turn; returns how many slices there were."""
        ends = time.monotonic() + RUN
        slices = 0
        while self._goes_on() and time.monotonic() < ends:
            due = [id for id in self._open() if self._held.get(id, (0.0, 0.0))[0] <= time.monotonic()]
            worked = sum(self._goes_on() and self._slice(id) for id in due)
            if not worked:
                break
            slices += worked
        return slices

    def stop(self) -> None:
        self._stopping.set()

    def close(self) -> None:
        for pace in self._paces.values():
            pace.close()

    def _open(self) -> list[int]:
        return list(BulkRun.objects.filter(status__in=OPEN).order_by("pk").values_list("pk", flat=True))

    def _slice(self, id: int) -> bool:
        """Works on one run for one slice; returns False if there was nothing to do for this process."""
        claim = BulkRunLock.take(id, precheck.now())
        if claim is None:
            return False
        try:
            self._work(claim)
        except BulkRunTaken:
            log.warning("bulk run %d is now owned by another process", id)
            self._later(id)
        except Fenced as error:
            self._give_up(claim, error)
        return True

    def _work(self, claim: BulkRunLock) -> None:
        run, ends = claim.run, time.monotonic() + SLICE
        try:
            self._found[run.pk] = execute_run(
                claim,
                lambda: self._rest(run.deployment) and time.monotonic() < ends,
                self._leader_token,
                self._found.pop(run.pk, None),
            )
        except BlockedByConsole as error:
            self._hold(claim, str(error), longest=HOLD)
        except (BulkRunBlocked, StoreError, NotRecorded) as error:
            self._hold(claim, str(error))
        except (Unsupported, BadOrder, Forbidden, QueueMissing, DeploymentMissing) as error:
            claim.beat(precheck.now(), status=FAILED, ended_at=precheck.now(), trouble=str(error))
        else:
            self._held.pop(run.pk, None)

    def _rest(self, deployment: str) -> bool:
        """Waits between two chunks; returns False if no other may follow."""
        self._stopping.wait(min(LONGEST, self._pace(deployment).rest()))
        return self._goes_on()

    def _goes_on(self) -> bool:
        return self._may() and not self._stopping.is_set()

    def _pace(self, deployment: str) -> BulkThrottle:
        if deployment not in self._paces:
            self._paces[deployment] = BulkThrottle(self._registry.config.deployment(deployment))
        return self._paces[deployment]

    def _give_up(self, claim: BulkRunLock, fenced: Fenced) -> None:
        """Leaves the run to the leader, unless it has begun already; without a leader the run says why it waits."""
        with suppress(BulkRunTaken):
            self._hold(claim, str(fenced))

    def _hold(self, claim: BulkRunLock, why: str, longest: float = LONGEST_HOLD) -> None:
        """Records why the run waits, in the log once, and tries again later."""
        self._later(claim.run.pk, longest)
        is_known = claim.run.trouble == why
        claim.beat(precheck.now(), trouble=why)
        if not is_known:
            log.warning("bulk run %d is paused: %s", claim.run.pk, why)

    def _later(self, id: int, longest: float = LONGEST_HOLD) -> None:
        """Schedules the next attempt after a delay that doubles each time, up to `longest`."""
        _, last = self._held.get(id, (0.0, 0.0))
        span = min(longest, last * 2 or HOLD)
        self._held[id] = (time.monotonic() + span, span)
