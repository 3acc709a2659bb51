"""Secrets in texts, and texts without any: read from the files beside this one, with secrets made up on the spot."""

from __future__ import annotations

import base64
import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote
from zlib import crc32

HERE = Path(__file__).parent
LETTERS, LOWER, UPPER, DIGITS = string.ascii_letters, string.ascii_lowercase, string.ascii_uppercase, string.digits
_ALPHABETS = {
    "an": LETTERS + DIGITS,
    "AN": UPPER + DIGITS,
    "low": LOWER + DIGITS,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "d": DIGITS,
    "url": LETTERS + DIGITS + "-_",
    "b64x": LETTERS + DIGITS + "+/",
    "pct": LETTERS + DIGITS + "+/",
}
_STAND_IN = re.compile(r"<(uuid|word|pw9?|b64colon|(an|AN|low|hex|HEX|d|url|b64x|pct)(\d+))>")
_WORDS = (
    *("correct", "horse", "battery", "staple", "walnut", "copper", "meadow", "violin", "anchor", "lantern", "pepper"),
    *("glacier", "hunter", "swordfish", "letmein", "dragon", "monkey", "orbit", "velvet", "thunder", "cactus"),
)
# Where a format of a vendor stands when no name beside it gives it away.
PLACES = (
    "said {} and went away",
    '{{"note":"{}","id":7}}',
    "argv: deploy {} --now",
    "https://api.example.com/v1/items/{}/parts",
    "GET /hook?x={}&y=1 500",
    "invalid value '{}' at line 3",
    "[{}] worker-3 failed",
    'value="{}",',
    "    at run ({})",
    "note={}; retry",
)


@dataclass(frozen=True, slots=True)
class Secret:
    """A text and what in it is secret. `is_held`: one of the third that was kept aside while patterns were written."""

    kind: str
    text: str
    secrets: tuple[str, ...]
    is_held: bool

    def leaks(self, shown: str) -> bool:
        """Whether a piece of a secret can be read: the beginning, the end, or a word of it."""
        return any(piece in shown for secret in self.secrets for piece in _pieces(secret))


@dataclass(frozen=True, slots=True)
class Harmless:
    kind: str
    text: str
    is_held: bool


def secrets() -> tuple[Secret, ...]:
    return (*_contexts(), *_vendors())


def harmless() -> tuple[Harmless, ...]:
    return tuple(Harmless(kind, text.replace("⏎", "\n"), _is_held(text)) for kind, text in _lines("harmless.txt"))


def _contexts() -> Iterator[Secret]:
    for kind, template in _lines("contexts.txt"):
        filled = _filled(template.replace("⏎", "\n"), template)
        parts = re.split("[«»]", filled)
        yield Secret(kind, "".join(parts), tuple(parts[1::2]), _is_held(template))


def _vendors() -> Iterator[Secret]:
    """Each format in one place, which its name chooses."""
    for name, template in _lines("vendors.txt"):
        found = _filled(template, name)
        place = PLACES[crc32(name.encode()) % len(PLACES)] if _stands_alone(found) else "{}"
        secret = max(re.findall(r"[A-Za-z0-9_~+%-]{8,}", found.partition("://")[2] or found), key=len)
        yield Secret("vendor", place.format(found), (secret,), _is_held(name))


def _stands_alone(found: str) -> bool:
    return " " not in found and "=" not in found[:-2] and "://" not in found


def _pieces(secret: str) -> Iterator[str]:
    for part in re.split(r"[\s;]|\\n", secret):
        word = part.rpartition("=")[2] if "=" in part[:-2] else part
        if len(word) > 16:
            yield from (word[:8], word[-8:])
        elif len(word) > 2:
            yield word


def _lines(name: str) -> Iterator[tuple[str, str]]:
    for line in (HERE / name).read_text("utf-8").splitlines():
        if not line.startswith("#"):
            kind, _, text = line.partition("\t")
            yield kind, text


def _is_held(template: str) -> bool:
    return crc32(template.encode()) % 3 == 0


def _filled(template: str, seed: str) -> str:
    chance = random.Random(seed)
    return _STAND_IN.sub(lambda found: _made(found, chance), template)


def _made(found: re.Match[str], chance: random.Random) -> str:
    match found[1]:
        case "uuid":
            return "-".join(_some(chance, "hex", size) for size in (8, 4, 4, 4, 12))
        case "word":
            return chance.choice(_WORDS)
        case "pw":
            return f"{_some(chance, 'an', 4)}{chance.choice('!-_.+~*')}{_some(chance, 'an', 4)}{chance.choice(DIGITS)}"
        case "pw9":
            return f"{_some(chance, 'an', 8)}{chance.choice(DIGITS)}"
        case "b64colon":
            return base64.b64encode(f"ada:{_some(chance, 'an', 12)}".encode()).decode()
    made = _some(chance, found[2], int(found[3]))
    return quote(made, safe="") if found[2] == "pct" else made


def _some(chance: random.Random, alphabet: str, size: int) -> str:
    """Letters and digits of both kinds, as generators of tokens make them."""
    signs = _ALPHABETS[alphabet]
    made = "".join(chance.choice(signs) for _ in range(size))
    is_mixed = set(DIGITS) & set(made) or not set(DIGITS) & set(signs) or size < 4
    return made if is_mixed else made[:-1] + chance.choice(DIGITS)
