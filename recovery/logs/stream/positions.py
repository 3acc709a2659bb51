"""Points in what the servers ship: all their streams in one order, so that one short text is a place in all of them.

The order is the id that the store gave an entry, then the server (its mark), then the line within the entry. It holds
because no reader takes an entry of the current millisecond: nothing can come to lie before what was read. The one
thing that breaks it is a clock of the store that goes back; marks.py keeps those right who are reading meanwhile.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import lru_cache

Id = tuple[int, int]  # of an entry: milliseconds by the store's clock, and a number within them

NEVER: Id = (0, 0)  # before all entries
DONE = 1 << 30  # lines taken of an entry that is taken whole
_LAST = (1 << 64) - 1  # the highest number within a millisecond
_PLACE = re.compile(
    r"([0-9]{1,16})(?:-|\.([0-9]{1,20})\.([0-9a-f]{12})(?:\.([0-9]{1,9}))?)?(?:~[0-9a-z]{1,40})?", re.ASCII
)


@dataclass(frozen=True, slots=True, order=True)
class StreamPosition:
    """Point behind so many lines of one entry; all that is ordered before the entry lies before the point too."""

    ms: int
    number: int = 0
    mark: str = ""
    taken: int = 0

    @classmethod
    def parse(cls, text: str) -> StreamPosition | None:
        found = _PLACE.fullmatch(text)
        if found is None:
            return None
        ms, number, mark, taken = found.groups()
        if mark is None:
            return cls(int(ms))
        return cls(int(ms), min(int(number), _LAST), mark, DONE if taken is None else int(taken))

    def __str__(self) -> str:
        """Returns the text of the place; milliseconds alone: everything before them."""
        if not self.mark:
            return str(self.ms)
        behind = f"{self.ms}.{self.number}.{self.mark}"
        return behind if self.taken == DONE else f"{behind}.{self.taken}"

    @property
    def entry(self) -> Id:
        return self.ms, self.number

    def is_inside(self, id: Id, mark: str) -> bool:
        """Returns True if some lines of this entry lie before the point, and maybe not all."""
        return self.entry == id and self.mark == mark and 0 < self.taken < DONE

    def whole(self, mark: str) -> Id:
        """Returns the last id of a server that lies before the point for sure, with all of its lines."""
        if mark < self.mark or (mark == self.mark and self.taken == DONE):
            return self.entry
        return previous(self.entry)

    def touched(self, mark: str) -> Id:
        """Returns the last id of a server of which any line lies before the point."""
        if mark < self.mark or (mark == self.mark and self.taken > 0):
            return self.entry
        return previous(self.entry)


@lru_cache(maxsize=4096)
def mark_of(server: bytes) -> str:
    """Returns twelve characters for a server's name, which may be long and of any bytes."""
    return hashlib.blake2b(server, digest_size=6).hexdigest()


def previous(id: Id) -> Id:
    ms, number = id
    if number:
        return ms, number - 1
    return (ms - 1, _LAST) if ms else NEVER


def last_of(ms: int) -> Id:
    """Returns the id behind all that comes in a millisecond."""
    return ms, _LAST


def parse_id(raw: bytes) -> Id:
    ms, _, number = raw.partition(b"-")
    return int(ms), int(number)


def format_id(id: Id) -> str:
    return f"{id[0]}-{id[1]}"
