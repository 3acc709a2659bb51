"""Runs the scheduler process: competes for the lease, does the work of its role, and ends in order.

On the first signal: 1. no new run starts; 2. runs under way are finished; 3. the heartbeat is deleted; 4. the lease is
released, and another scheduler leads; 5. Redis and 6. the database are closed. What hangs is abandoned after eight
seconds, and the log says where. A second signal exits at once.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from django.db import connections

from recovery.config import Config
from recovery.errors import UnstallError
from recovery.processes.heartbeat import Heartbeat
from recovery.processes.signals import StopRequest
from recovery.scanners.other_consoles import OtherConsoles
from recovery.scheduler.heartbeat import SchedulerHeartbeatWriter
from recovery.scheduler.lease import LeaderLease
from recovery.scheduler.lease_holder import LeaseHolder
from recovery.scheduler.lease_row import LeaseRecord, LeaseRow
from recovery.scheduler.plan import PlanEntry, SchedulerPlan, leader_plan, reader_plan
from recovery.scheduler.plan_runner import PlanRunner
from recovery.shared_clock import steady
from recovery.stores.registry import ConnectionRegistry

# -- role switch
# Switches the role of this process as the lease comes and goes: leader, follower, or reader while none can lead. All
# runs begun under one lease have ended before any begins under the next one.


log = logging.getLogger(__name__)

SAY_EVERY = 5.0  # seconds
CLAIM_EVERY = 2.0  # a reader checks more often if it still may read
STUCK = 90.0  # seconds; the longest interval between two snapshots is a minute, and each wait in one is shorter
OVERDUE = 30.0  # seconds for the runs of an old plan to end: each of their waits is shorter


class SchedulerRole(StrEnum):
    LEADER = "leads"
    READER = "only reads"  # the database is away
    FOLLOWER = "is on standby"


@dataclass(frozen=True, slots=True)
class RoleAssignment:
    role: SchedulerRole
    epoch: int | None = None


_FOLLOWS = RoleAssignment(SchedulerRole.FOLLOWER)


class RoleSwitch:
    """Begins and ends plans by the role. `turn` is called often, by one thread. `give_up` is called when an old plan
    does not end, so that this process cannot go on.
    """

    def __init__(
        self,
        config: Config,
        registry: ConnectionRegistry,
        lease: LeaderLease,
        alive: SchedulerHeartbeatWriter,
        give_up: Callable[[], None],
    ):
        self._config = config
        self._registry = registry
        self._lease = lease
        self._alive = alive
        self._give_up = give_up
        self._part = _FOLLOWS
        self._duty: PlanRunner | None = None
        self._overdue_at = 0.0
        self._told = ""  # the holder

    def turn(self) -> None:
        wanted = self._wanted()
        if self._duty is None:
            self._begin(wanted)
        elif self._duty.is_over:
            self._duty = None
            self._lease.stand(True)
        elif self._duty.is_ending:
            if steady() > self._overdue_at:
                self._give_up()
        elif wanted != self._part:
            self._leave(wanted)
        else:
            self._duty.keep_time()

    @property
    def is_stuck(self) -> bool:
        """Returns True if a leader or reader has not finished a snapshot run, successful or not, for STUCK seconds."""
        return self._duty is not None and steady() - self._duty.came_round > STUCK

    def close(self) -> None:
        """Ends the current plan, and waits for its runs."""
        if self._duty:
            self._duty.end()

    def _wanted(self) -> RoleAssignment:
        epoch = self._lease.epoch()
        if epoch is not None:
            return RoleAssignment(SchedulerRole.LEADER, epoch)
        return RoleAssignment(SchedulerRole.READER) if self._lease.is_blind else _FOLLOWS

    def _begin(self, part: RoleAssignment) -> None:
        if part.role is SchedulerRole.FOLLOWER:
            self._tell_leader()
            return
        self._alive.set_clock()
        table, alive = self._led(part.epoch) if part.epoch is not None else self._read()
        self._part, self._duty = part, PlanRunner(table, alive)
        what = ", ".join(entry.name for entry in table.entries)
        if part.role is SchedulerRole.LEADER:
            log.info("started: %s. It is the leader, epoch %d", what, part.epoch)
        else:
            log.warning("started: %s. It only reads: the leader is unknown", what)

    def _leave(self, wanted: RoleAssignment) -> None:
        """Begins the end of the current plan; until its last run has ended this process does not want to lead."""
        assert self._duty is not None  # noqa: S101 -- `turn` has made sure of it
        if self._part.role is SchedulerRole.LEADER:
            self._lease.stand(False)
            log.warning("the lease of epoch %d is lost; it %s", self._part.epoch, wanted.role)
        self._overdue_at = steady() + OVERDUE
        self._duty.begin_end()
        self._told = ""

    def _led(self, epoch: int) -> tuple[SchedulerPlan, PlanEntry]:
        leader_token, grant = self._lease.leader_token(epoch), self._lease.grant()
        me, since = self._lease.me, grant.since if grant else 0
        consoles = OtherConsoles(self._registry, leader_token.installation, me.host, me.pid, since)

        def say(now: int) -> None:
            if grant and leader_token.holds():
                self._alive.lead(grant, now, consoles.others())

        led = leader_plan(self._config, self._registry, replace(leader_token, rival=consoles.rival), consoles)
        return led, PlanEntry("alive", SAY_EVERY, say)

    def _read(self) -> tuple[SchedulerPlan, PlanEntry]:
        table = reader_plan(self._config, self._registry, lambda: self._alive.may_read)
        return table, PlanEntry("alive", CLAIM_EVERY, self._alive.claim)

    def _tell_leader(self) -> None:
        """Logs the current leader, once for each."""
        leader = self._lease.leader
        if leader is not None and leader.holder != self._told:
            log.info("on standby: %s is the leader, epoch %d", _shown(leader), leader.epoch)
            self._told = leader.holder


def _shown(leader: LeaseRecord) -> str:
    holder = LeaseHolder.parse(leader.holder)
    return holder.shown if holder else "another scheduler"


# -- process


TURN = 0.05  # seconds between two reads of the lease, which is in our own memory
GRACE = 8.0  # seconds until a hanging end is forced; the supervisor waits ten before it kills
INSISTED = 130  # exit status of a process that was interrupted
HUNG = 1


def run(config: Config, ending: StopRequest | None = None) -> None:
    """Runs until a signal comes."""
    ending = ending or StopRequest(lambda: os._exit(INSISTED))
    ending.listen()
    registry, me = ConnectionRegistry(config), LeaseHolder.here()
    lease, alive = LeaderLease(LeaseRow(), me), SchedulerHeartbeatWriter(registry, me)
    office = RoleSwitch(config, registry, lease, alive, _give_up)
    heartbeat = Heartbeat(os.environ)
    lease.start()
    while not ending.wait(TURN):
        office.turn()
        if not office.is_stuck:
            heartbeat.beat()
    heartbeat.end()
    _end(office, lease, alive, registry)


def _end(office: RoleSwitch, lease: LeaderLease, alive: SchedulerHeartbeatWriter, registry: ConnectionRegistry) -> None:
    log.info("ending")
    overdue = threading.Timer(GRACE, _give_up)
    overdue.daemon = True
    overdue.start()
    office.close()
    try:
        alive.leave()
    except UnstallError as error:
        log.info("the scheduler's heartbeat cannot be removed: %s", error)
    lease.stop()
    registry.close()
    connections.close_all()
    overdue.cancel()
    log.info("ended")


def _give_up() -> None:
    """Exits with a traceback, so that the supervisor starts the process again without what hangs."""
    log.error("still busy after its timeout; not waiting for it")
    faulthandler.dump_traceback()
    os._exit(HUNG)
