"""A cluster's map: which master owns which slots, as CLUSTER SLOTS tells it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recovery.config import Address
from recovery.connections.encoded import Command
from recovery.connections.slots import slot_of


@dataclass(frozen=True, slots=True, eq=False)
class Topology:
    """One look at the cluster. Compared by identity: a batch split for another look is split anew."""

    starts: tuple[int, ...]
    ranges: tuple[tuple[int, int, Address], ...]
    masters: tuple[Address, ...]

    def owner(self, command: Command) -> Address:
        """Who answers this command. A slot that nobody owns goes to the first master, which says what is wrong."""
        slot = slot_of(command)
        if slot is None:
            return self.masters[0]
        place = bisect_right(self.starts, slot) - 1
        if place >= 0:
            _, end, master = self.ranges[place]
            if slot <= end:
                return master
        return self.masters[0]

    def same_as(self, other: Topology | None) -> bool:
        return other is not None and self.ranges == other.ranges


def read(reply: Sequence[Any], asked: Address) -> Topology | None:
    """CLUSTER SLOTS as a topology; None when no slot has an owner."""
    ranges = sorted(
        ((int(entry[0]), int(entry[1]), _address(entry[2], asked)) for entry in reply), key=lambda found: found[:2]
    )
    if not ranges:
        return None
    masters = tuple(sorted({master for _, _, master in ranges}))
    return Topology(tuple(start for start, _, _ in ranges), tuple(ranges), masters)


def _address(node: Sequence[Any], asked: Address) -> Address:
    """A node that does not know its own name yet gives none: it is then where we asked."""
    host = (node[0] or b"").decode()
    return Address(host if host not in ("", "?") else asked.host, int(node[1]))
