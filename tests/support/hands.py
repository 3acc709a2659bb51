"""Workers of the real libraries, moved by hand: they take, renew, finish and sweep when a test says so.

hand = Hand.of(queue)         # BullMQ: a worker that does not run; Bull: a queue object with its own token
job = hand.take()
assert hand.finish(job) == "" # "" done, else why the library refused
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.support.processes.driver import Driver
from tests.support.processes.fleet import Queue

# A hand's own check may run again at once: its `stalled-check` lasts no longer than this.
SWEEP_MS = 1
LOCK_MS = 60_000  # nobody renews a hand's locks: longer than any test


class Swept(NamedTuple):
    """What one run of the library's own check did."""

    requeued: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hand:
    """One worker. `after` is in milliseconds, waited in the library's own process just before the step."""

    driver: Driver
    id: str

    @classmethod
    def of(cls, queue: Queue, **options: Any) -> Hand:
        hand = cls(queue.library.driver, secrets.token_hex(4))
        where = {"url": queue.url, "prefix": queue.prefix, "name": queue.name}
        chosen = {"lockDuration": LOCK_MS, "stalledInterval": SWEEP_MS, **options}
        hand.driver.ask("hand", hand=hand.id, queue=where, options=chosen)
        return hand

    @staticmethod
    def close_all(queue: Queue) -> None:
        """Every hand of this queue's library lets go of its connections, and hands nothing back."""
        queue.library.driver.ask("closeHands")

    def take(self) -> str | None:
        """The next job, locked; None when there is none. One that is doomed is failed at once, as a worker does."""
        while taken := self._step("take"):
            if not taken["doomed"]:
                return str(taken["id"])
            self.fail(taken["id"], taken["doomed"])
        return None

    def finish(self, job: str, *, after: float = 0.0) -> str:
        return str(self._step("finish", job=job, after=after))

    def fail(self, job: str, reason: str = "it failed") -> str:
        return str(self._step("fail", job=job, reason=reason))

    def renew(self, job: str, *, ms: int = LOCK_MS, after: float = 0.0) -> bool:
        return bool(self._step("renew", job=job, ms=ms, after=after))

    def sweep(self, *, after: float = 0.0) -> Swept:
        told = self._step("sweep", after=after)
        return Swept(tuple(told["stalled"]), tuple(told["failed"]))

    def token(self, job: str) -> str:
        """What it has put, or would put, into the lock of a job that it took."""
        return str(self._step("token", job=job))

    def _step(self, step: str, **more: Any) -> Any:
        return self.driver.ask("step", hand=self.id, step=step, **more)
