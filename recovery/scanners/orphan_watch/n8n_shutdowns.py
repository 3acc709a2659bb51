"""Learns from a server's shipped logs that a worker of n8n that left was asked to stop and exceeded its grace period.

Only for workers that did not remove themselves from the registry, on servers whose monitor ships logs, within a minute
of their departure: lines arrive some seconds late. If several left one server together, each needs a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from recovery.config import Config
from recovery.domain.n8n.detection import is_n8n
from recovery.domain.n8n.instances import InstanceEnding
from recovery.domain.stuck.context import WorkerChange
from recovery.domain.time_units import MINUTE, SECOND
from recovery.errors import ConfigError, StoreError
from recovery.logs import n8n_shutdowns, shippers
from recovery.scanners.orphan_watch.queue_state import QueueState

ASKED_FOR = MINUTE  # after a departure
_EVERY = 10 * SECOND
_BEFORE, _AFTER = 20 * SECOND, 5 * SECOND  # of the line, to the pass that noticed the departure


class ShutdownLogs:
    """Searches logs for the workers of one deployment."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._asked_at = 0

    def explain(self, posts: Iterable[QueueState], now: int) -> None:
        """Adds the exceeded grace period to departures of n8n's workers; a log store that is away adds nothing."""
        if now - self._asked_at < _EVERY:
            return
        ours = [post for post in posts if is_n8n(post.ref, post.sample.flavour)]
        pending = [change for post in ours for change in post.memory.left if _is_open(change, now)]
        if not pending:
            return
        self._asked_at = now
        told = self._told(pending)
        for post in ours:
            left = tuple(replace(one, gave_up_after=told.get(one, one.gave_up_after)) for one in post.memory.left)
            post.memory = replace(post.memory, left=left)

    def _told(self, pending: Sequence[WorkerChange]) -> dict[WorkerChange, int]:
        shipped, found = shippers.servers(), dict[WorkerChange, int]()
        for server in sorted({change.host for change in pending} & shipped):
            mine = [change for change in pending if change.host == server]
            for change in mine:
                together = [one for one in mine if abs(one.at - change.at) <= _BEFORE]
                said = self._said(server, change)
                if len(said) >= len(together):
                    found[change] = said[-1]
        return found

    def _said(self, server: str, change: WorkerChange) -> tuple[int, ...]:
        try:
            return n8n_shutdowns.find_timeouts(self._config, server, change.at - _BEFORE, change.at + _AFTER)
        except (StoreError, ConfigError):
            return ()


def _is_open(change: WorkerChange, now: int) -> bool:
    is_stopped = change.ending == InstanceEnding.STOPPED
    return bool(change.host) and change.gave_up_after is None and not is_stopped and now - change.at <= ASKED_FOR
