"""Points between lines, and how they are written.

Lines are in one order everywhere: by their ns, within it by their stream, within that by their text. A point is in
front of a line or behind it, or in front of all lines of a ns:

    1763500000000000000                      in front of all of that ns
    1763500000000000000.STREAM.LINE          behind this line
    1763500000000000000.STREAM.LINE-         in front of this line
    POINT~1763500000000000000.STREAM.LINE    this line came late, when all up to the point had been read already

STREAM and LINE are digests, so a point means the same to every process, also where many lines share a ns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b

_DIGEST = r"[0-9a-f]{12}"
_LINE = rf"(\d{{1,19}})\.({_DIGEST})\.({_DIGEST})"
_POINT = re.compile(rf"{_LINE}(-?)|(\d{{1,19}})", re.ASCII)
_PLACE = re.compile(rf"(?:(?P<late>[^~]+)~)?(?P<point>{_LINE}-?|\d{{1,19}})", re.ASCII)
_BYTES = 6  # of a digest: within one ns of one stream are some thousand lines at most

Key = tuple[int, str, str]  # ns, stream, line


@dataclass(frozen=True, slots=True)
class LokiPoint:
    at: int
    stream: str = ""
    line: str = ""
    is_front: bool = True

    @property
    def key(self) -> Key:
        return self.at, self.stream, self.line

    @property
    def is_bare(self) -> bool:
        return not self.stream

    def __str__(self) -> str:
        if self.is_bare:
            return str(self.at)
        return f"{self.at}.{self.stream}.{self.line}{'-' if self.is_front else ''}"


@dataclass(frozen=True, slots=True)
class LokiPosition:
    """Place of a reader. `read`: what is behind it has not been read. `point` is elsewhere only for a late line."""

    read: LokiPoint
    point: LokiPoint

    def __str__(self) -> str:
        return f"{self.read}~{self.point}" if self.is_late else str(self.point)

    @property
    def is_late(self) -> bool:
        return self.read != self.point

    @classmethod
    def parse(cls, text: str) -> LokiPosition | None:
        """Parses a place; None when it is none of ours."""
        found = _PLACE.fullmatch(text)
        if found is None:
            return None
        point = _point(found["point"])
        read = _point(found["late"]) if found["late"] else point
        return cls(read, point) if read and point else None


def at_point(point: LokiPoint) -> LokiPosition:
    return LokiPosition(point, point)


def front(at: int) -> LokiPosition:
    """Returns the place in front of all lines of this ns."""
    return at_point(LokiPoint(at))


def behind(key: Key, read: LokiPoint | None = None) -> LokiPosition:
    point = LokiPoint(*key, is_front=False)
    return LokiPosition(read or point, point)


def before(key: Key) -> LokiPosition:
    return at_point(LokiPoint(*key, is_front=True))


def digest(raw: bytes) -> str:
    return blake2b(raw, digest_size=_BYTES).hexdigest()


def _point(text: str) -> LokiPoint | None:
    found = _POINT.fullmatch(text)
    if found is None:
        return None
    at, stream, line, is_front, bare = found.groups()
    return LokiPoint(int(bare)) if bare else LokiPoint(int(at), stream, line, bool(is_front))
