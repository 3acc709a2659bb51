"""Records gate decisions in the state store, once a second and never while a caller waits.

Admissions are recorded too, for processes that start later and for the pages. While the store is away, a bounded
number of decisions is kept in memory.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from redis.asyncio import Redis

from dashboard.gate.responses import GateAnswer
from recovery.domain.identifiers import encode_name
from recovery.errors import StoreError
from recovery.gate.queries import KEPT, KEPT_S
from recovery.stores.redis import redis_errors
from recovery.stores.state import state_keys

log = logging.getLogger(__name__)

PENDING = 2_000  # decisions kept in memory at most; the oldest are dropped first
CALLERS = 200  # counted separately within one second; further ones are counted together
OTHERS = "others"


class SettlingMark(NamedTuple):
    """Time of an admission, and the time until which the gate settles."""

    at: int
    until: int


@dataclass(slots=True)
class GateDecisionNote:
    """Recorded decision. Refusals of one caller within a second are recorded as one."""

    server: str
    caller: str
    token: str
    ready: bool
    reason: str
    cpu: float | None
    at: int
    times: int = 1

    def fields(self) -> dict[Any, Any]:
        told = {
            b"at": str(self.at),
            b"caller": self.caller,
            b"token": self.token,
            b"ready": "1" if self.ready else "0",
            b"reason": self.reason,
            b"cpu": "" if self.cpu is None else f"{self.cpu:.1f}",
            b"times": str(self.times),
        }
        return {name: encode_name(value) for name, value in told.items()}


class GateDecisionLog:
    """Decisions of this process that are not written yet. Only the event loop uses it."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str, str, str], GateDecisionNote] = {}
        self._pending: deque[GateDecisionNote] = deque(maxlen=PENDING)
        self._marks: dict[str, SettlingMark] = {}

    def add(self, answer: GateAnswer, caller: str, token: str, now: int) -> None:
        """Keeps a decision in memory for the next flush."""
        if answer.ready:
            self._pending.append(_note(answer, caller, token, now))
            return
        key = (answer.server, caller, token, answer.reason.value)
        if key not in self._refused and len(self._refused) >= CALLERS:
            caller, token = OTHERS, ""
            key = (answer.server, caller, token, answer.reason.value)
        note = self._refused.get(key)
        if note is None:
            self._refused[key] = _note(answer, caller, token, now)
        else:
            note.times, note.cpu = note.times + 1, answer.cpu

    def mark(self, server: str, at: int, until: int) -> None:
        self._marks[server] = SettlingMark(at, until)

    async def flush(self, store: Callable[[], Redis], now: int) -> None:
        """Writes everything recorded so far in one round trip; keeps it if the store does not answer."""
        self._pending.extend(self._refused.values())
        self._refused.clear()
        if not self._pending and not self._marks:
            return
        notes, marks = list(self._pending), self._marks
        self._pending.clear()
        self._marks = {}
        try:
            await _write(store(), notes, marks, now)
        except StoreError as error:
            log.debug("gate decisions will be recorded later: %s", error)
            self._pending = deque((*notes, *self._pending), maxlen=PENDING)
            self._marks = marks | self._marks


async def _write(client: Redis, notes: list[GateDecisionNote], marks: Mapping[str, SettlingMark], now: int) -> None:
    pipeline = client.pipeline(transaction=False)
    for note in notes:
        pipeline.xadd(state_keys.gate_decisions(note.server), note.fields(), maxlen=KEPT, approximate=True)
    for server in {note.server for note in notes}:
        pipeline.expire(state_keys.gate_decisions(server), KEPT_S)
    for server, mark in marks.items():
        if mark.until > now:
            pipeline.set(state_keys.gate_settling(server), str(mark.at), px=mark.until - now)
    if len(pipeline):
        with redis_errors.guarded(client):
            await pipeline.execute()


def _note(answer: GateAnswer, caller: str, token: str, now: int) -> GateDecisionNote:
    return GateDecisionNote(answer.server, caller, token, answer.ready, answer.reason.value, answer.cpu, now)
