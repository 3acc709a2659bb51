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

from django.db import connections

from recovery.config import Config
from recovery.errors import UnstallError
from recovery.processes.heartbeat import Heartbeat
from recovery.processes.signals import StopRequest
from recovery.scheduler.heartbeat import SchedulerHeartbeatWriter
from recovery.scheduler.lease import LeaderLease
from recovery.scheduler.lease_holder import LeaseHolder
from recovery.scheduler.lease_row import LeaseRow
from recovery.scheduler.role_switch import RoleSwitch
from recovery.stores.registry import ConnectionRegistry

log = logging.getLogger(__name__)

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
