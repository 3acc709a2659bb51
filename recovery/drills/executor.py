"""Carries out fire drills that operators request, each in a child process, so that the scheduler does not wait for it.

That process cleans up after itself when it is stopped, also when the scheduler dies: then the kernel signals it.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from django.db import Error, close_old_connections, transaction

from recovery import shared_clock
from recovery.domain.audit.hash_chain import canonical
from recovery.domain.drills.plan import AT_MOST, arguments
from recovery.domain.drills.results import DrillRound, DrillStatus
from recovery.domain.identifiers import printable
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.drills import drill_orders as orders
from recovery.drills import queries as seen
from recovery.errors import StoreError
from recovery.models import DrillRun
from recovery.processes.child import Child, ChildCommand
from recovery.stores.registry import ConnectionRegistry

log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two checks for a request
OFFER_EVERY = 30.0  # seconds between two checks of what could be started
LISTEN = 0.25  # seconds between two reads of a drill that is under way
ENDING = 6.0  # seconds that it has to clean up; the scheduler itself has eight
STEPS = 12  # of a round
WORDS = 300  # characters of what went wrong
_MANAGE = Path(__file__).parents[2] / "manage.py"
_CUT_OFF = "The scheduler that ran it stopped, or is no longer the leader."


@dataclass(slots=True)
class _Heard:
    """Output of the drill process so far."""

    version: str = ""
    rounds: list[DrillRound] = field(default_factory=list)
    steps: list[tuple[int, str, int]] = field(default_factory=list)
    cleaned: int | None = None
    noted: dict[str, Any] = field(default_factory=dict)  # the columns as they are stored
    noise: deque[str] = field(default_factory=lambda: deque(maxlen=5))

    @property
    def row(self) -> dict[str, Any]:
        """Columns of the drill's row that follow from the output."""
        return {
            "version": self.version[:40],
            "rounds": canonical([one.as_json() for one in self.rounds]),
            "under_way": canonical([list(step) for step in self.steps]),
            "cleaned": self.cleaned,
        }

    def take(self, line: str) -> None:
        try:
            self._take(json.loads(line))
        except (ValueError, TypeError, AttributeError):
            self.noise.append(line.removeprefix("CommandError: "))

    def _take(self, told: dict[str, Any]) -> None:
        if "version" in told:
            self.version = str(told["version"])
        elif "round" in told:
            self.rounds = [*self.rounds, DrillRound.of_json(told["round"])][:AT_MOST]
            self.steps = []
        elif "what" in told:
            self.steps = [*self.steps, (int(told["number"]), str(told["what"]), int(told["at"]))][-STEPS:]
        else:
            self.cleaned = told.get("cleaned")
            self.noise.extend(filter(None, [str(told.get("says", ""))]))


class DrillExecutor:
    """Carries out drills during one term of the leader. `look` is called by one thread, and lasts as long as they."""

    def __init__(self, registry: ConnectionRegistry, leader_token: LeaderToken, *, manage: Path = _MANAGE) -> None:
        self._registry = registry
        self._leader_token = leader_token
        self._manage = manage
        self._stopping = threading.Event()
        self._offer_at = 0.0

    def look(self, _now: int) -> None:
        """Carries out the oldest waiting drill, if any. Raises Error of the database, StoreError and NotRecorded."""
        self._offer()
        for left in DrillRun.objects.filter(status=DrillStatus.RUNNING):  # none is ours: we would be at it
            self._close(left, _Heard(), DrillStatus.FAILED, _CUT_OFF)
        row = DrillRun.objects.filter(status=DrillStatus.WAITING).order_by("pk").first()
        if row is not None and row.wants_stop:
            self._close(row, _Heard(), DrillStatus.STOPPED, "")
        elif row is not None and self._goes_on():
            self._run(row)

    def stop(self) -> None:
        """Asks the drill that is under way to clean up and end."""
        self._stopping.set()

    def _goes_on(self) -> bool:
        return self._leader_token.holds() and not self._stopping.is_set()

    def _offer(self) -> None:
        if time.monotonic() < self._offer_at:
            return
        self._offer_at = time.monotonic() + OFFER_EVERY
        try:
            seen.write(self._registry.state(), seen.offers_of_this_process())
        except StoreError as error:
            log.debug("available drills cannot be recorded: %s", error)

    def _run(self, row: DrillRun) -> None:
        begun = DrillRun.objects.filter(pk=row.pk, status=DrillStatus.WAITING)
        if not begun.update(status=DrillStatus.RUNNING, started_at=_now(), epoch=self._leader_token.epoch):
            return
        row.refresh_from_db()
        lines: SimpleQueue[str] = SimpleQueue()
        argv = [sys.executable, str(self._manage), "drill", "--follow", *arguments(seen.run_of(row).plan)]
        child = Child(ChildCommand("drill", argv, death=signal.SIGTERM), lambda _, line: lines.put(line))
        heard = _Heard()
        try:
            asked = self._watch(row, child, lines, heard)
        finally:
            child.stop(ENDING)
        _drain(lines, heard)
        status, trouble = _outcome(child.ended(), heard, asked=asked, goes_on=self._goes_on())
        self._close(row, heard, status, trouble)

    def _watch(self, row: DrillRun, child: Child, lines: SimpleQueue[str], heard: _Heard) -> bool:
        """Waits until the drill has ended or has to; returns True when an operator stopped it."""
        while child.ended() is None and self._goes_on():
            _drain(lines, heard)
            if _noted(row, heard):
                return True
            self._stopping.wait(LISTEN)
        return False

    def _close(self, row: DrillRun, heard: _Heard, status: DrillStatus, trouble: str) -> None:
        """Closes the drill with its audit entry in one transaction, unless another process has closed it."""
        known = seen.run_of(row)
        told = heard.row if heard.version else {}
        with transaction.atomic():
            changed = DrillRun.objects.filter(pk=row.pk, status=row.status, epoch=row.epoch).update(
                **told | {"status": status, "trouble": trouble, "ended_at": _now(), "under_way": "[]"}
            )
            if changed:
                row.status = status
                orders.record_end(row, known.actor, heard.rounds or known.rounds)


def _noted(row: DrillRun, heard: _Heard) -> bool:
    """Stores the progress; returns True if an operator stopped the drill. A failing database does not end the drill."""
    known = heard.row
    try:
        if known != heard.noted:
            DrillRun.objects.filter(pk=row.pk, epoch=row.epoch).update(**known)
            heard.noted = known
        return DrillRun.objects.filter(pk=row.pk, wants_stop=True).exists()
    except Error as error:
        log.warning("drill progress cannot be recorded: %s", type(error).__name__)
        close_old_connections()
        return False


def _outcome(code: int | None, heard: _Heard, *, asked: bool, goes_on: bool) -> tuple[DrillStatus, str]:
    words = printable(" ".join(heard.noise))[-WORDS:]
    if asked:
        return DrillStatus.STOPPED, ""
    if not goes_on:
        return DrillStatus.FAILED, _CUT_OFF
    if heard.rounds and heard.cleaned is not None:
        return DrillStatus.ENDED, words
    return DrillStatus.FAILED, words or f"It ended with status {code}, without output."


def _drain(lines: SimpleQueue[str], heard: _Heard) -> None:
    for line in iter(lambda: _next(lines), None):
        heard.take(line)


def _next(lines: SimpleQueue[str]) -> str | None:
    try:
        return lines.get_nowait()
    except Empty:
        return None


def _now() -> int:
    return shared_clock.now()
