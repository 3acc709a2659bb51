"""A master, its replica and one Sentinel, all private to the tests."""

from __future__ import annotations

from typing import Self

import redis

from tests.support.stores.stores import Store
from tests.support.waiting import until

_MASTER = "queues"
_FAILOVER_SECONDS = 30.0
# Production waits for stragglers and looks every ten seconds; a test need not.
_HASTE = {"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"}
_LOOK_MS = {"info-period": 200, "ping-period": 200, "publish-period": 200, "tilt-period": 1000}


class Sentinel:
    """One Sentinel with a quorum of one: it may fail over alone."""

    def __init__(self) -> None:
        self.name = _MASTER
        self.first = Store(options=_HASTE)
        self.second = Store(options=_HASTE)
        self.watcher = Store(arguments=("sentinel.conf", "--sentinel"))

    @property
    def url(self) -> str:
        return f"redis+sentinel://127.0.0.1:{self.watcher.port}/{self.name}/0"

    @property
    def port(self) -> int:
        return self.watcher.port

    @property
    def master(self) -> Store:
        """The one that Sentinel calls master now."""
        _host, port = self.watcher.do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
        return self.first if int(port) == self.first.port else self.second

    @property
    def replica(self) -> Store:
        return self.second if self.master is self.first else self.first

    @property
    def client(self) -> redis.Redis:
        return self.master.client

    def start(self) -> Self:
        self.first.start()
        self.second.start()
        self.second.client.replicaof("127.0.0.1", self.first.port)
        self._configure()
        self.watcher.start()
        self._hurry()
        self._settle()
        return self

    def fail_over(self) -> None:
        """Swap master and replica as an operator would, and wait until both know."""
        old = self.master
        until(lambda: self._has_left(old), _FAILOVER_SECONDS, "Sentinel names another master")
        self._settle()

    def flush(self) -> None:
        self.client.flushall()

    def renew(self) -> None:
        for store in (self.watcher, self.first, self.second):
            if store.is_running:
                store.resume()
            store.start()
        self._hurry()
        self._settle()
        self.flush()

    def close(self) -> None:
        for store in (self.watcher, self.second, self.first):
            store.close()

    def _configure(self) -> None:
        lines = (
            f"sentinel monitor {self.name} 127.0.0.1 {self.first.port} 1",
            f"sentinel down-after-milliseconds {self.name} 1000",
            f"sentinel failover-timeout {self.name} 5000",
        )
        (self.watcher.directory / "sentinel.conf").write_text("\n".join(lines) + "\n")

    def _hurry(self) -> None:
        for name, milliseconds in _LOOK_MS.items():
            self.watcher.do("SENTINEL", "DEBUG", name, milliseconds)

    def _has_left(self, old: Store) -> bool:
        """Orders it, and once more when Sentinel gave it up: right after another one no replica may be fit yet."""
        facts = self.watcher.do("SENTINEL", "MASTER", self.name)
        is_under_way = "failover_in_progress" in str(facts)
        if self.master is not old:  # asked last: it may just have ended
            return True
        if not is_under_way:
            self._order()
        return False

    def _order(self) -> None:
        try:
            self.watcher.do("SENTINEL", "FAILOVER", self.name)
        except redis.ResponseError as refusal:
            if not any(word in str(refusal) for word in ("NOGOODSLAVE", "INPROG")):
                raise

    def _settle(self) -> None:
        until(self._is_whole, _FAILOVER_SECONDS, "a master with a replica in step, as Sentinel sees them")

    def _is_whole(self) -> bool:
        try:
            replica = self.replica.client.info("replication")
            known = self.watcher.do("SENTINEL", "REPLICAS", self.name)
            return (
                self.master.client.info("replication")["role"] == "master"
                and replica["role"] == "slave"
                and replica["master_link_status"] == "up"
                and bool(known)
            )
        except redis.RedisError:
            return False
