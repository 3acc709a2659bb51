"""Alerts from the web process if no scheduler leads. It needs no scheduler and, if need be, no database.

One of several web processes sends, which the state store decides; while that is down, the database; and while both are
down each of them sends, because none can know of the others.
"""

from __future__ import annotations

import asyncio
import logging
import secrets

from django.db import Error, connections

from dashboard.live.cached_state import CachedState, SnapshotHealth
from recovery import shared_clock
from recovery.alerts.channel_backoff import ChannelBackoff
from recovery.alerts.notifier import AlertNotifier, sender_of
from recovery.alerts.store import AlertStore, DatabaseAlertStore, InMemoryAlertStore
from recovery.config import Config
from recovery.domain.alerts.types import AlertCheck, AlertFinding, AlertKind
from recovery.errors import UnstallError
from recovery.stores.redis import redis_errors
from recovery.stores.registry import registry
from recovery.stores.state import state_keys

log = logging.getLogger(__name__)

EVERY = 5.0  # seconds
CLAIM_MS = 20_000  # several checks; the process that claimed it may have ended
KINDS = frozenset((AlertKind.SCHEDULER,))
_NONE = "No scheduler is running: queues are not read, jobs are not recovered and no other alert is sent."
_UNLED = (
    "A scheduler runs but cannot become leader, because the database does not answer: nothing is recorded or recovered."
)
_BLIND = "The state store does not answer, so it is unknown whether a scheduler is running:"


class NoLeaderWatch:
    """Watch of one web process. `look` blocks; one thread at a time may call it."""

    def __init__(self, config: Config, image: CachedState) -> None:
        self._image = image
        self._is_wanted = bool(config.alerting.channels) and AlertKind.SCHEDULER in config.alerting.terms.kinds
        self._desk = AlertNotifier(
            sender_of(config), ChannelBackoff(lambda: registry().state()), lambda: not self._is_stopping
        )
        self._rows = DatabaseAlertStore(KINDS)
        self._memory = InMemoryAlertStore()
        self._is_cut_off = False  # from the database: the alerts are those in memory
        self._me = secrets.token_hex(8)
        self._key, self._since = "", 0  # what is wrong, and since when
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._is_wanted:
            self._task = asyncio.create_task(self._run(), name="vigil")

    async def stop(self) -> None:
        """Stops the task without waiting for a message that is being sent."""
        self._is_stopping = True
        if self._task:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            now = shared_clock.now()
            try:
                await asyncio.to_thread(self.look, now, self._image.health(now))
            except Exception:  # any failure: the next check continues
                log.exception("cannot determine whether a scheduler is the leader")

    def look(self, now: int, health: SnapshotHealth) -> int:
        """Checks once, and sends what is due; returns how many messages were delivered."""
        try:
            found = self._found(now, health)
            book = self._book()  # in any case: sent alerts must be known if the database goes down
            return self._desk.run(book, found) if self._is_mine() else 0
        except Error as error:
            log.warning("alerts cannot be kept: the database said %s", type(error).__name__)
            return 0
        finally:
            connections.close_all()  # of this thread

    def _found(self, now: int, health: SnapshotHealth) -> AlertCheck:
        trouble = _trouble(health)
        if trouble is None:
            return AlertCheck(now, known=frozenset())
        key, words = trouble
        if key != self._key:
            self._key, self._since = key, now
        finding = AlertFinding(AlertKind.SCHEDULER, key, words, "/scanners", since=self._since)
        return AlertCheck(now, (finding,) if words else (), KINDS)

    def _book(self) -> AlertStore:
        """Returns the alerts in the database, or a copy in memory of what was last read there."""
        try:
            if self._is_cut_off:
                self._memory.hand_over(self._rows)
            self._memory = InMemoryAlertStore(self._rows.standing())
        except Error:
            self._is_cut_off = True
            return self._memory
        self._is_cut_off = False
        return self._rows

    def _is_mine(self) -> bool:
        """Returns True if this process is to send; also if the state store cannot decide it."""
        try:
            store = registry().state()
            with redis_errors.guarded(store):
                if store.set(state_keys.NO_LEADER_NOTIFIER, self._me, nx=True, px=CLAIM_MS):
                    return True
                is_mine = store.get(state_keys.NO_LEADER_NOTIFIER) == self._me.encode()
                if is_mine:
                    store.pexpire(state_keys.NO_LEADER_NOTIFIER, CLAIM_MS)
                return is_mine
        except UnstallError:
            return True


def _trouble(health: SnapshotHealth) -> tuple[str, str] | None:
    """Returns key and words of the alert; ("", "") if a scheduler leads, None if that is not known yet.

    Another key is another alert.
    """
    if health.error:
        return "state store", f"{_BLIND} {health.error}"
    if health.refuses:
        return "state store", health.refuses
    if health.scheduler_alive is None:
        return None
    if not health.scheduler_alive:
        return "scheduler", _NONE
    return ("database", _UNLED) if health.is_unled else ("", "")
