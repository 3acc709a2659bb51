"""Places in many files as one short text: the offset in each file that was written to last, and a moment for the rest.

`MOMENT/KEY.OFFSET,KEY.OFFSET` names files in which something lies before the place; in any other nothing does. With
`+` in place of `/` there are more than the text has room for: of those, what is older than the moment lies before it.
`MOMENT:KEY.OFFSET` is a line's own id: behind that line, and in other files behind what is older. Numbers in base 16.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Self

from recovery.logs.base import PLACE_LIMIT

KEPT = 64  # places whose files do not fit into their text; a reader with an older one goes on by its moment
WHOLE, PART, LINE = "/", "+", ":"
_NUMBER = "[0-9a-f]{1,16}"
_PLACE = re.compile(
    rf"({_NUMBER})([/+:])((?:[\w-]{{8}}\.{_NUMBER}(?:,[\w-]{{8}}\.{_NUMBER})*)?)(?:~[0-9a-f]{{8}})?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class LogFilePosition:
    """Place in many files. `kind` says what holds for files that are not in `offsets`."""

    at: int
    offsets: Mapping[str, int] = field(default_factory=dict, hash=False)
    kind: str = WHOLE

    @classmethod
    def parse(cls, text: str) -> Self | None:
        found = _PLACE.fullmatch(text)
        if found is None:
            return None
        at, kind, files = found.groups()
        pairs = [part.split(".") for part in files.split(",") if part]
        if kind == LINE and len(pairs) != 1:
            return None
        return cls(int(at, 16), {key: int(offset, 16) for key, offset in pairs}, kind)

    @classmethod
    def line(cls, at: int, key: str, end: int) -> Self:
        return cls(at, {key: end}, LINE)

    def __str__(self) -> str:
        return self._text(list(self.offsets), self.kind)

    def short(self, order: Sequence[str]) -> str:
        """Returns the text with as many files as there is room for, the first in the order that is given."""
        whole = str(self)
        if len(whole) <= PLACE_LIMIT:
            return whole
        digest = f"~{blake2b(whole.encode(), digest_size=4).hexdigest()}"
        room, named = PLACE_LIMIT - len(digest) - len(f"{self.at:x}") - 1, []
        for key in filter(self.offsets.__contains__, order):
            room -= len(key) + len(f"{self.offsets[key]:x}") + 2
            if room < 0:
                break
            named.append(key)
        return self._text(named, PART) + digest

    def _text(self, keys: Sequence[str], kind: str) -> str:
        return f"{self.at:x}{kind}{','.join(f'{key}.{self.offsets[key]:x}' for key in keys)}"


class LogFilePositions:
    """Places of the last readers that their texts do not say whole."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, LogFilePosition] = OrderedDict()

    def written(self, place: LogFilePosition, order: Sequence[str]) -> str:
        text = place.short(order)
        if PART in text:
            self._kept[text] = place
            self._kept.move_to_end(text)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return text

    def read(self, text: str) -> LogFilePosition | None:
        return self._kept.get(text) or LogFilePosition.parse(text)
