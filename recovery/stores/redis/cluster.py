"""Client of a Redis Cluster: each command goes to the master of its slot, and after a change of owners once more."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import redis

from recovery.config import Deployment, ServerAddress
from recovery.errors import Garbled, NotReady, StoreError, Unreachable
from recovery.stores.redis.client import StoreClient
from recovery.stores.redis.cluster_slots import slot_of_command
from recovery.stores.redis.connection import RedisConnection
from recovery.stores.redis.pipeline import Command, EncodedBatch, NodeBatch, chunked
from recovery.stores.redis.pool import RedisConnectionPool

# -- cluster map
# Map of a cluster: which master owns which slots, from CLUSTER SLOTS.


@dataclass(frozen=True, slots=True, eq=False)
class ClusterMap:
    """Slots of a cluster at one moment. Compared by identity: a batch split for another moment is split anew."""

    starts: tuple[int, ...]
    ranges: tuple[tuple[int, int, ServerAddress], ...]
    masters: tuple[ServerAddress, ...]

    def owner(self, command: Command) -> ServerAddress:
        """Returns who answers this command. A slot without owner goes to the first master, which says so."""
        slot = slot_of_command(command)
        if slot is None:
            return self.masters[0]
        place = bisect_right(self.starts, slot) - 1
        if place >= 0:
            _, end, master = self.ranges[place]
            if slot <= end:
                return master
        return self.masters[0]

    def same_as(self, other: ClusterMap | None) -> bool:
        return other is not None and self.ranges == other.ranges


def parse_cluster_slots(reply: Sequence[Any], asked: ServerAddress) -> ClusterMap | None:
    """Parses CLUSTER SLOTS; returns None when no slot has an owner."""
    ranges = sorted(
        ((int(entry[0]), int(entry[1]), _address(entry[2], asked)) for entry in reply), key=lambda found: found[:2]
    )
    if not ranges:
        return None
    masters = tuple(sorted({master for _, _, master in ranges}))
    return ClusterMap(tuple(start for start, _, _ in ranges), tuple(ranges), masters)


def _address(node: Sequence[Any], asked: ServerAddress) -> ServerAddress:
    """Returns a node's address. A node that does not know its own name yet gives none: it is then where we asked."""
    host = (node[0] or b"").decode()
    return ServerAddress(host if host not in ("", "?") else asked.host, int(node[1]))


# -- cluster


# Seconds a node has to draw the map: it answers from memory, and a silent one must leave time for the next.
MAP_LIMIT = 0.25
MAP_BUDGET = 0.5  # seconds for all nodes together; a node that failed is asked last the next time
_REDIRECTS = (redis.exceptions.MovedError, redis.exceptions.AskError)


class _Round(NamedTuple):
    """An attempt: the replies so far, which commands are to be sent again, and what stopped them."""

    replies: list[Any]
    again: list[int]
    fault: StoreError | None


class ClusterClient(StoreClient):
    """Keeps a map of the cluster until a reply or a dead node shows that it is old."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._seeds = list(deployment.nodes)
        self._topology: ClusterMap | None = None
        self._pools: dict[ServerAddress, RedisConnectionPool] = {}
        self._lock = threading.Lock()
        self._drawing = threading.Lock()

    def send(self, batch: EncodedBatch) -> list[Any]:
        """Sends a batch. What was moved, or found no server, is sent once more by a fresh map; nothing else is."""
        topology = self._mapped(None)
        replies, again, fault = self._round(batch, topology)
        if not again:
            return replies
        fresh = self._mapped(topology)
        if fault and fresh.same_as(topology):
            raise fault
        rest = EncodedBatch([batch.commands[place] for place in again])
        answers, still, fault = self._round(rest, fresh)
        if fault:
            raise fault
        for place in still:
            answers[place] = self._asked(rest.commands[place], answers[place])
        for place, answer in zip(again, answers, strict=True):
            replies[place] = answer
        return replies

    def nodes(self) -> tuple[str, ...]:
        return tuple(str(master) for master in self._mapped(None).masters)

    def at(self, node: str, commands: Sequence[Command]) -> list[Any]:
        for master in self._mapped(None).masters:
            if str(master) == node:
                return self._exchange(master, EncodedBatch(commands))
        raise Unreachable(f"{self.target} ({node})", "it is no longer a master of this cluster")

    def close(self) -> None:
        with self._lock:
            pools, self._pools = self._pools, {}
        for pool in pools.values():
            pool.close()

    def _exchange(self, node: ServerAddress, batch: EncodedBatch) -> list[Any]:
        with self._doubting(), self._pool(node).line() as line:
            return line.exchange(batch.chunks)

    # -- one attempt

    def _round(self, batch: EncodedBatch, topology: ClusterMap) -> _Round:
        """Posts to every node before it reads from any, so that the nodes work side by side."""
        attempt = _Round([None] * len(batch), [], None)
        with self._doubting(), ExitStack() as lines:
            posted: list[tuple[NodeBatch, RedisConnection]] = []
            for part in batch.split(topology, topology.owner):
                try:
                    line = lines.enter_context(self._pool(part.node).line())
                except (Unreachable, NotReady) as fault:  # nothing was sent: to try again is safe
                    attempt.again.extend(part.places)
                    attempt = attempt._replace(fault=fault)
                    continue
                posted.append((part, line))
                line.post(part.chunks[0])
            for part, line in posted:
                _gather(part, line, attempt)
        return attempt

    @contextmanager
    def _doubting(self) -> Iterator[None]:
        """Drops the map after any failure, as it may be the reason: the next call draws it anew."""
        try:
            yield
        except StoreError:
            self._topology = None
            raise

    def _asked(self, command: Command, redirect: Any) -> Any:
        """Follows an ASK redirect: the slot's target answers when ASKING stands right before the command."""
        if type(redirect) is not redis.exceptions.AskError:
            return redirect
        address = ServerAddress(*redirect.node_addr)
        with self._pool(address).line() as line:
            return line.exchange(chunked([("ASKING",), command]))[1]

    def _pool(self, node: Any) -> RedisConnectionPool:
        with self._lock:
            if node not in self._pools:
                self._pools[node] = RedisConnectionPool(
                    lambda: RedisConnection.open(node, self._terms, self._target_of(node))
                )
            return self._pools[node]

    # -- the map

    def _mapped(self, old: ClusterMap | None) -> ClusterMap:
        """Returns the map, drawn anew when there is none or when it is still the `old` one."""
        topology = self._topology
        if topology is None or topology is old:
            with self._drawing:
                if self._topology is None or self._topology is old:
                    self._topology = self._drawn()
                    self._keep_pools_of(self._topology)
                topology = self._topology
        return topology

    def _drawn(self) -> ClusterMap:
        known = list(dict.fromkeys((*self._seeds, *self.deployment.nodes)))
        faults: list[StoreError] = []
        end = time.monotonic() + MAP_BUDGET
        while len(faults) < len(known) and time.monotonic() < end:
            node = known[0]
            try:
                found = self._ask(node)
            except StoreError as fault:
                faults.append(fault)
                known.append(known.pop(0))
                self._seeds = known
                continue
            self._seeds = [node, *(master for master in found.masters if master != node)]
            return found
        raise faults[0] if len(faults) == 1 else _all_failed(self.target, faults)

    def _ask(self, node: ServerAddress) -> ClusterMap:
        terms = replace(self._terms, timeout=MAP_LIMIT, connect=MAP_LIMIT, doubts_silence=False)
        line = RedisConnection.open(node, terms, self._target_of(node))
        try:
            (reply,) = line.exchange(chunked([("CLUSTER", "SLOTS")]))
        finally:
            line.close()
        if isinstance(reply, redis.ResponseError):
            raise _refused(reply, self._target_of(node))
        found = parse_cluster_slots(reply, node)
        if found is None:
            raise NotReady(self._target_of(node), "the cluster has no slots assigned yet")
        return found

    def _keep_pools_of(self, topology: ClusterMap) -> None:
        with self._lock:
            for node in [node for node in self._pools if node not in topology.masters]:
                self._pools.pop(node).close()

    def _target_of(self, node: ServerAddress) -> str:
        return self.deployment.target_of(node)


def _refused(reply: redis.ResponseError, target: str) -> StoreError:
    if "cluster support disabled" in str(reply):
        return Garbled(target, "it is not part of a cluster: write redis:// in the URL")
    return StoreError(target, f"CLUSTER SLOTS gave an unusable answer: {reply}", command="CLUSTER SLOTS")


def _all_failed(target: str, faults: Sequence[StoreError]) -> StoreError:
    reasons = "; ".join(f"{fault.target.rpartition('/')[2]} {fault.reason}" for fault in faults)
    return type(faults[0])(target, f"no node returned the slot map: {reasons}")


def _gather(part: NodeBatch, line: RedisConnection, attempt: _Round) -> None:
    answers = line.collect()
    answers += line.exchange(part.chunks[1:])
    for place, answer in zip(part.places, answers, strict=True):
        attempt.replies[place] = answer
        if isinstance(answer, _REDIRECTS):
            attempt.again.append(place)
