"""Parses terminal codes in a line: keeps colours and styles, and removes all other codes.

A look is some of LOOKS, with a blank between them. Sixteen colours are told apart, as themes have them: finer ones
become the nearest, and a background stands for its text, so that everything stays legible on either theme.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_SIXTEEN = (*_COLOURS, *(f"bright-{colour}" for colour in _COLOURS))
_MANNERS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 9: "strike", 21: "underline"}
_ENDS = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 29: ("strike",)}
_ORDER = ("bold", "dim", "italic", "underline", "strike")
LOOKS = (*_ORDER, *_SIXTEEN)
# Text in these colours on a background was made to be read on it: the background says more.
_NEUTRAL = frozenset(("", "black", "white", "bright-black", "bright-white"))

RUNS_LIMIT = 500  # changes of look in one line; what comes after has none
_PARAMETERS_LIMIT = 32
# Each part is possessive, or stops at the next escape: what is never ended costs one look and no more.
_CODE = re.compile(
    r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033)\[([0-9;:]*+)m"  # colours, also as JSON and shells write them
    r"|\x1b\[[0-?]*+[ -/]*+[@-~]"  # other control sequences
    r"|\x1b[\]PX^_][^\x07\x1b]*+(?:\x07|\x1b\\)"  # titles, links and other strings
    r"|\x1b[ -/]*+[0-OQ-WYZ`-~]"  # the rest: two characters, or three
)

Run = tuple[str, str]  # a text and its look


def may_have(text: str) -> bool:
    """Returns True for every text that `parsed` would change. It is cheap, and may be True for others."""
    return "\x1b" in text or ("\\" in text and ("1b[" in text or "1B[" in text or "033[" in text))


def bytes_may_have(raw: bytes) -> bool:
    return b"\x1b" in raw or (b"\\" in raw and (b"1b[" in raw or b"1B[" in raw or b"033[" in raw))


def strip_codes(text: str) -> str:
    """Removes all terminal codes from the text."""
    return _CODE.sub("", text)


def parse_runs(text: str) -> tuple[Run, ...]:
    """Splits the text, without its codes, into runs of one look each."""
    return tuple(merge_runs(_runs(text)))


def merge_runs(runs: Iterable[Run]) -> Iterator[Run]:
    """Merges neighbours of the same look; what follows after RUNS_LIMIT changes becomes one run without a look."""
    whole = (("".join(text for text, _ in group), look) for look, group in groupby(runs, key=lambda run: run[1]))
    kept = ((text, look) for text, look in whole if text)
    for _, run in zip(range(RUNS_LIMIT), kept, strict=False):
        yield run
    rest = "".join(text for text, _ in kept)
    if rest:
        yield rest, ""


def _runs(text: str) -> Iterator[Run]:
    pen, position, look = _Pen(), 0, ""
    for code in _CODE.finditer(text):
        yield text[position : code.start()], look
        position = code.end()
        if code[1] is not None:
            pen.obey(code[1])
            look = pen.look()
    yield text[position:], look


class _Pen:
    """State of the terminal's pen: colours and styles of the text that follows."""

    def __init__(self) -> None:
        self._manners: set[str] = set()
        self._colour = self._ground = ""

    def look(self) -> str:
        colour = self._ground if self._ground and self._colour in _NEUTRAL else self._colour
        return " ".join((*(manner for manner in _ORDER if manner in self._manners), *filter(None, (colour,))))

    def obey(self, parameters: str) -> None:
        numbers = iter([int(number[-4:] or 0) for number in re.split("[;:]", parameters, maxsplit=_PARAMETERS_LIMIT)
                        if number.isdigit() or not number])  # fmt: skip
        for number in numbers:
            self._turn(number, numbers)

    def _turn(self, number: int, following: Iterator[int]) -> None:
        if number == 0:
            self._manners.clear()
            self._colour = self._ground = ""
        elif number in _MANNERS:
            self._manners.add(_MANNERS[number])
        elif number in _ENDS:
            self._manners.difference_update(_ENDS[number])
        elif 30 <= number <= 37 or 90 <= number <= 97:
            self._colour = _of_sixteen(number, 30)
        elif 40 <= number <= 47 or 100 <= number <= 107:
            self._ground = _of_sixteen(number, 40)
        elif number == 39:
            self._colour = ""
        elif number == 49:
            self._ground = ""
        elif number == 38:
            self._colour = _finer(following) or self._colour
        elif number == 48:
            self._ground = _finer(following) or self._ground


def _of_sixteen(number: int, base: int) -> str:
    place = number - base
    return _SIXTEEN[place if place < 8 else place - 60 + 8]


def _finer(following: Iterator[int]) -> str:
    """Reads the colour after 38 or 48: `5;n` of 256, `2;r;g;b` of all."""
    kind = next(following, 0)
    if kind == 5:
        number = next(following, 0)
        if number < 16:
            return _SIXTEEN[number]
        if number >= 232:
            return _nearest(*[(number - 232) * 10 + 8] * 3)
        return _nearest(*((number - 16) // step % 6 * 51 for step in (36, 6, 1)))
    if kind == 2:
        return _nearest(*(next(following, 0) for _ in range(3)))
    return ""


def _nearest(red: int, green: int, blue: int) -> str:
    """Returns the nearest of the sixteen colours, by which of the three parts are strong and how bright the strongest
    is.
    """
    strongest, weakest = max(red, green, blue), min(red, green, blue)
    if strongest - weakest < 48:
        greys = ("black", "bright-black", "white", "bright-white")
        return greys[min(strongest // 64, 3)]
    middle = (strongest + weakest) / 2
    place = (red > middle) + 2 * (green > middle) + 4 * (blue > middle)
    return _SIXTEEN[place + (8 if strongest > 220 else 0)]
