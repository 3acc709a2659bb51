"""Settings that decide what becomes of a job whose worker is stopped or killed; in seconds, None: not known."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.queues.types import QueueLibrary

LOCK = 30.0  # default of both libraries
STALLED_INTERVAL = 30.0
MAX_STALLED = 1


@dataclass(frozen=True, slots=True)
class WorkerTiming:
    """Timing of one kind of worker. `library`: Bull (n8n too) or BullMQ. `renew` is the application's setting; how it
    is kept depends on the library.

    `stalled_interval` 0: no worker runs the check. `max_stalled` 0: a job found without its worker is failed at once.
    `shutdown`: how long the application waits for its jobs after SIGTERM. `grace`: from the order to stop until
    SIGKILL, the time of `pre_stop` included; the platform sets both.
    `error_after`: what n8n waits from there until the execution of a failed job is an error.
    """

    library: QueueLibrary = QueueLibrary.BULL
    lock: float = LOCK
    renew: float = LOCK / 2
    stalled_interval: float = STALLED_INTERVAL
    max_stalled: int = MAX_STALLED
    shutdown: float | None = None
    pre_stop: float = 0.0
    grace: float | None = None
    error_after: float = 0.0
