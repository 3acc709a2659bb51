"""Map of a cluster: which master owns which slots, from CLUSTER SLOTS."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recovery.config import ServerAddress
from recovery.stores.redis.cluster_slots import slot_of_command
from recovery.stores.redis.pipeline import Command


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
