"""The scheduler process: stands for the lease, does what its part is, and ends in order.

On the first signal: 1. no new run starts; 2. what is in hand is finished; 3. our sign of life is taken away; 4. the
lease is let go, and another one leads; 5. Redis and 6. the database are closed. Whatever hangs is left behind after
eight seconds, and the log says where. A second signal exits at once.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import threading

from django.db import connections

from recovery.config import Config
from recovery.connections.registry import Registry
from recovery.errors import UnstallError
from recovery.processes.heartbeat import Heartbeat
from recovery.processes.signals import Ending
from recovery.scheduler.alive import Alive
from recovery.scheduler.holder import Holder
from recovery.scheduler.lease import Lease
from recovery.scheduler.office import Office
from recovery.scheduler.row import Row

log = logging.getLogger(__name__)

TURN = 0.05  # seconds between two looks at the lease, which is in our own memory
GRACE = 8.0  # seconds until a hanging end is forced; whoever started us waits ten before it kills
INSISTED = 130  # exit status of a process that was interrupted
HUNG = 1


def run(config: Config, ending: Ending | None = None) -> None:
    """Until a signal comes."""
    ending = ending or Ending(lambda: os._exit(INSISTED))
    ending.listen()
    registry, me = Registry(config), Holder.here()
    lease, alive = Lease(Row(), me), Alive(registry, me)
    office = Office(config, registry, lease, alive, _give_up)
    heartbeat = Heartbeat(os.environ)
    lease.start()
    while not ending.wait(TURN):
        office.turn()
        if not office.is_stuck:
            heartbeat.beat()
    heartbeat.end()
    _end(office, lease, alive, registry)


def _end(office: Office, lease: Lease, alive: Alive, registry: Registry) -> None:
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
    """Somebody starts us again, with nothing left of what hangs."""
    log.error("still busy after its timeout; not waiting for it")
    faulthandler.dump_traceback()
    os._exit(HUNG)
