"""The gate of one web process without the process: its parts over a real state store, and a clock that a test sets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from dashboard.gate.admission_lock import AdmissionArbiter
from dashboard.gate.admissions import Admissions
from dashboard.gate.asgi import PATH, CpuGate
from dashboard.gate.decision_log import GateDecisionLog
from dashboard.live.cached_state import CachedState
from recovery.config.gate import GateConfig
from recovery.domain.gate.state_machine import CALM, Gate
from tests.support.stuck.gating import POLL, tell

T = TypeVar("T")

START = 1_800_000_000_000
LOCAL = ("127.0.0.1", 40_000)


@dataclass(frozen=True, slots=True)
class Told:
    status: int
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def reason(self) -> str:
        return str(self.body["reason"])


class Desk:
    """`own`: the id of the machine it runs on; `local`: what it measures there."""

    def __init__(self, url: str, gating: GateConfig | None = None, *, own: str = "web-1", local: Gate | None = None):
        gating = gating or GateConfig()
        self.now = START
        self.image = CachedState(2.0, gating)
        self.local = local
        self.keeper = Admissions(lambda: self.image, lambda: self.local, own, gating, self.now)
        self.notes = GateDecisionLog()
        self.url = url
        self.client = redis.Redis.from_url(url)
        self.app = CpuGate(
            self.keeper, self.notes, AdmissionArbiter(self._store), opens_on_loopback=True, clock=lambda: self.now
        )

    def flush(self) -> None:
        """What the process does once a second."""
        self._run(lambda: self.notes.flush(self._store, self.now))

    def look(self) -> None:
        """What the mirror does."""
        question = self.client.pipeline(transaction=False)
        self.image.question(question)
        self.image.answer(question.execute(), self.now)

    def see(self, *cpu: float, server: str = "eu-1", poll: int = POLL) -> None:
        """A sample of each poll, seen at once."""
        for share in cpu:
            self.now += poll
            tell(self.client, server, share, self.now, poll=poll)
            self.look()
            if server not in {one.id for one in self.image.servers}:
                self.look()  # a server that is new is read with the next one

    def settle(self, server: str = "eu-1", cpu: float = 20.0) -> None:
        """Open, and nobody was let in lately."""
        self.see(*[cpu] * (CALM + 1), server=server)

    def ask(self, query: str = "server=eu-1", **scope: Any) -> Told:
        (told,) = self.ask_at_once(1, query, **scope)
        return told

    def ask_at_once(self, times: int, query: str = "server=eu-1", **scope: Any) -> list[Told]:
        async def all_of_them() -> list[Told]:
            return await asyncio.gather(*(self._one(query, scope) for _ in range(times)))

        return self._run(all_of_them)

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """In a loop of its own, with a client of its own."""

        async def run() -> T:
            self._aclient = redis.asyncio.Redis.from_url(self.url, retry=Retry(NoBackoff(), 0))
            async with self._aclient:
                return await work()

        return asyncio.run(run())

    def _store(self) -> redis.asyncio.Redis:
        return self._aclient

    async def _one(self, query: str, more: dict[str, Any]) -> Told:
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {"method": "GET", "path": PATH, "query_string": query.encode(), "client": LOCAL, **more}
        scope["headers"] = [(b"host", b"127.0.0.1:8000"), *more.get("headers", ())]
        await self.app(scope, receive, send)
        told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Told(sent[0]["status"], told, json.loads(sent[1]["body"]))
