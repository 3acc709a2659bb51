"""What the console can see of a queue, once a second: the connections that have a name, the active jobs with what is
left of their locks, the stalled check, Redis's run id, and what the monitor tells of the workers' processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import redis

from recovery.domain.servers.samples import Server
from recovery.servers import queries as servers_queries
from tests.endings.libraries import BASE
from tests.support.stores.stores import Store

EVERY = 1.0  # seconds
_FIELDS = ("timestamp", "processedOn", "ats", "atm", "attemptsMade", "stc", "stalledCounter", "pb")
_TOLD = ("id", "addr", "name", "cmd")
_MEASURED = ("id", "sampled_at", "poll", "cpu_raw", "cpu_ema", "cores")

Look = dict[str, Any]  # what is as it was at the look before is left out


class Recorder:
    """Looks from a thread of its own, until it is closed. A store that is away is not seen."""

    def __init__(self, store: Store, state: Store) -> None:
        self._store, self._state = store, state
        self._ended = threading.Event()
        self._whole: Look = {}
        self.looks: list[Look] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def now(self) -> Look:
        return self._whole

    def rest(self, seconds: float) -> None:
        self._ended.wait(seconds)

    def until(self, condition: Callable[[Look], bool], seconds: float = 60.0) -> None:
        ends = time.monotonic() + seconds
        while not condition(self._whole):
            if time.monotonic() > ends:
                raise RuntimeError(f"it did not come to that; last seen: {self._whole}")
            self.rest(EVERY / 5)

    def _run(self) -> None:
        while not self._ended.is_set():
            started = time.monotonic()
            with _away():
                self._note(self._look())
            self.rest(max(0.0, EVERY - (time.monotonic() - started)))

    def _note(self, look: Look) -> None:
        self.looks.append({name: value for name, value in look.items() if self._whole.get(name) != value})
        self._whole = look

    def _look(self) -> Look:
        client = self._store.client
        listed = sorted(client.client_list(), key=lambda one: int(one["id"]))
        clients = [_plain(one) for one in listed if one["name"].startswith(BASE.partition(":")[0])]
        ids = [id.decode() for id in reversed(client.lrange(f"{BASE}:active", 0, -1))]
        addresses = {one[1] for one in clients}
        return {
            "at": int(time.time() * 1000),
            "run": client.info("server")["run_id"],
            "clients": clients,
            "active": [[id, client.pttl(f"{BASE}:{id}:lock")] for id in ids],
            "jobs": {id: _job(client, id) for id in ids},
            "check": client.pttl(f"{BASE}:stalled-check"),
            "servers": [_server(one, addresses) for one in servers_queries.fetch(self._state.client)],
        }


def _plain(told: dict[str, str]) -> list[str]:
    return [str(told[name]) for name in _TOLD]


def _job(client: redis.Redis, id: str) -> dict[str, str]:
    found = zip(_FIELDS, client.hmget(f"{BASE}:{id}", *_FIELDS), strict=True)
    return {name: value.decode() for name, value in found if value is not None}


def _server(server: Server, addresses: set[str]) -> dict[str, Any]:
    """Its numbers, and of its processes those that are workers of this queue: the machine may run others."""
    told = asdict(server)
    mine = [one for one in server.processes if addresses & set(one.sockets)]
    processes = [[one.pid, one.cpu, sorted(addresses & set(one.sockets))] for one in mine]
    return {name: told[name] for name in _MEASURED} | {"processes": processes}


@contextmanager
def _away() -> Iterator[None]:
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError):
        return
