"""Guards the runs of one scanner: an error is logged once, not at each tick, and the next run goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import close_old_connections

from recovery import shared_clock
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.errors import UnstallError
from recovery.shared_clock import steady

log = logging.getLogger(__name__)


class TickGuard:
    """Callable that does one run."""

    def __init__(
        self,
        name: str,
        run: Callable[[int], object],
        clock: Callable[[], int] = shared_clock.now,
        may: May = always_leader,
    ) -> None:
        self._name = name
        self._run = run
        self._clock = clock
        self._may = may
        self._trouble = ""
        self.ended_at: float | None = None  # on the clock of `steady`

    def __call__(self) -> None:
        if self._may():
            self._go()
        self.ended_at = steady()

    def _go(self) -> None:
        close_old_connections()
        try:
            self._run(self._clock())
        except UnstallError as error:
            self._fail(str(error), None)
        except Exception as error:  # noqa: BLE001 -- a scanner's edge: whatever it is, the next run goes on
            self._fail(repr(error), error)
        else:
            self._succeed()
        finally:
            close_old_connections()

    def _fail(self, trouble: str, error: Exception | None) -> None:
        if trouble != self._trouble:
            log.error("%s: %s", self._name, trouble, exc_info=error)
        self._trouble = trouble

    def _succeed(self) -> None:
        if self._trouble:
            log.info("%s: recovered", self._name)
        self._trouble = ""
