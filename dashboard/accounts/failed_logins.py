"""Records failed log-ins: one line of the log each, and in the audit one entry per minute and address.

An attacker must not fill the audit, so what comes from one address within a minute is one entry, and of more addresses
than ADDRESSES the rest share one. They wait in memory until their minute is over: a process that is killed loses those
of its last minute from the audit, and never from the log.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import dataclass, field

from django.db import connections

from dashboard.accounts.login_limits import LoginFailureKind
from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Actor
from recovery.domain.identifiers import printable
from recovery.errors import NotRecorded

log = logging.getLogger(__name__)

ADDRESSES = 20  # entries of one minute and process; all others together make one more
NAMES = 5  # that an entry lists
NAME_LIMIT = 100  # characters
WAITING = 1_000  # sums that wait for an audit that cannot be written
TURN_SECONDS = 5.0
ACT = "failed log-in"
NOT_LOGGED_IN = "not logged in"
ELSEWHERE = "other addresses"
_MINUTE = 60


@dataclass(slots=True)
class FailedLoginCount:
    """Failed log-ins from one address within one minute."""

    minute: int
    address: str
    failures: int = 0
    paused: set[str] = field(default_factory=set)
    names: dict[str, None] = field(default_factory=dict)

    @property
    def body(self) -> dict[str, object]:
        told = {"failures": self.failures, "names": list(self.names)[:NAMES]}
        return {**told, **({"paused": sorted(self.paused)} if self.paused else {})}

    @property
    def words(self) -> str:
        names = ", ".join(list(self.names)[:NAMES]) + (" and others" if len(self.names) > NAMES else "")
        paused = f" Paused: {', '.join(sorted(self.paused))}." if self.paused else ""
        return f"{self.failures:,} failed for {names}.{paused}"


class FailedLogins:
    """Counts failed log-ins of this process. `add` may be called from any thread."""

    def __init__(self) -> None:
        self._sums: dict[tuple[int, str], FailedLoginCount] = {}
        self._lock = threading.Lock()

    def add(
        self, address: str, name: str, why: str, paused: tuple[LoginFailureKind, ...] = (), now: float = 0.0
    ) -> None:
        """Logs and counts one failure. `why`: password, code; `paused`: the limits that it has reached."""
        name = printable(name)[:NAME_LIMIT]
        log.warning("log-in failed from %s for %s: wrong %s", address or "-", _quoted(name), why)
        for kind in paused:
            log.warning(
                "log-ins paused from %s for %s: too many failures of one %s", address or "-", _quoted(name), kind
            )
        minute = int((now or time.time()) // _MINUTE)
        with self._lock:
            one = self._sum(minute, address)
            one.failures += 1
            one.paused.update(kind.value for kind in paused)
            if len(one.names) <= NAMES:
                one.names[name] = None

    def write(self, *, is_last: bool = False, now: float = 0.0) -> int:
        """Writes the sums of all minutes that are over into the audit, and returns how many. Raises NotRecorded.

        `is_last`: and of the minute that is not. What could not be written waits for the next call.
        """
        minute = (now or time.time()) // _MINUTE
        with self._lock:
            due = [key for key in self._sums if is_last or key[0] < minute]
        for key in due:
            one = self._sums[key]
            actor = Actor(kind="web", name=NOT_LOGGED_IN, address=one.address)
            audit_log.note(actor, ACT, one.words, body=one.body)
            with self._lock:
                del self._sums[key]
        return len(due)

    def _sum(self, minute: int, address: str) -> FailedLoginCount:
        key = (minute, address)
        same = sum(one == minute for one, _ in self._sums)
        if key not in self._sums and (same >= ADDRESSES or len(self._sums) >= WAITING):
            key = (minute, ELSEWHERE)
        return self._sums.setdefault(key, FailedLoginCount(*key))


failed_logins = FailedLogins()


async def write_for_ever() -> None:
    """Writes the sums every few seconds, as a task of the web process."""
    while True:
        await asyncio.sleep(TURN_SECONDS)
        await write_sums()


async def write_sums(*, is_last: bool = False) -> None:
    """Writes the sums into the audit. It never raises: what cannot be written is tried again."""
    try:
        await asyncio.to_thread(_write, is_last)
    except NotRecorded as error:
        log.warning("failed log-ins are not in the audit yet: %s", error)
    except Exception:
        log.exception("failed log-ins cannot be written into the audit")


def _write(is_last: bool) -> None:
    try:
        failed_logins.write(is_last=is_last)
    finally:
        connections.close_all()


def _quoted(name: str) -> str:
    """Returns the name in double quotes, which it cannot end itself."""
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
