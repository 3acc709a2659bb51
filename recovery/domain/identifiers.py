"""Names queues and jobs: in Redis, in a URL and on the screen.

Redis keys are any bytes. Inside the program they are str decoded with `surrogateescape`, so that every byte survives
the round trip; `shown` makes them fit for a screen, `slug` makes them fit for one URL segment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:{}")
_ALL_PLAIN = re.compile(r"[A-Za-z0-9_.:{}-]+")
_ESCAPE = re.compile(r"~([0-9A-F]{2})")
_EMPTY = "~"
_CONTROL = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
# Characters that turn the reading direction or hide, and codes for terminals (C1): an id must not be able to look like
# another one, or to act.
_HIDDEN = (
    *range(0x80, 0xA0),
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5),
    *range(0x180B, 0x1810),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *(0x2800, 0x3164),
    *range(0xFE00, 0xFE10),
    *(0xFEFF, 0xFFA0),
    *range(0xFFF0, 0xFFFC),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE0200),
)
_MARKED = _CONTROL | dict.fromkeys(_HIDDEN, 0xFFFD)


def decode_name(raw: bytes) -> str:
    """Decodes the bytes of a key or an id as str, losing nothing."""
    return raw.decode("utf-8", "surrogateescape")


def encode_name(name: str) -> bytes:
    """Encodes a name; the inverse of `text`."""
    return name.encode("utf-8", "surrogateescape")


def printable(name: str) -> str:
    """Returns a name as a person may see it: undecodable bytes replaced, control characters made visible."""
    return visible(encode_name(name).decode("utf-8", "replace"))


def visible(text: str) -> str:
    """Marks control and invisible characters of a foreign text, which would act where it is printed."""
    return text.translate(_MARKED)


def slug(name: str) -> str:
    """Returns a name as one URL segment: plain characters stay readable, every other byte becomes ~HH."""
    if _ALL_PLAIN.fullmatch(name) and name.strip("."):
        return name
    data = encode_name(name)
    if not data:
        return _EMPTY
    if set(data) == {0x2E}:  # "." and ".." would be eaten by the browser
        return "".join(f"~{byte:02X}" for byte in data)
    return "".join(chr(byte) if byte in _PLAIN else f"~{byte:02X}" for byte in data)


def unslug(segment: str) -> str:
    """Decodes a slug; raises ValueError on a segment that `slug` cannot have made."""
    if segment == _EMPTY:
        return ""
    data = bytearray()
    for position, part in enumerate(_ESCAPE.split(segment)):
        if position % 2:
            data.append(int(part, 16))
        elif "~" in part:
            raise ValueError(f"not a name: {segment!r}")
        else:
            data += part.encode("utf-8")
    name = decode_name(bytes(data))
    if slug(name) != segment:
        raise ValueError(f"not a name: {segment!r}")
    return name


@dataclass(frozen=True, slots=True, order=True)
class QueueRef:
    """A queue: its deployment and its base, the key prefix with the queue's name (`bull:jobs`)."""

    deployment: str
    base: str

    @property
    def label(self) -> str:
        return printable(self.base)

    @property
    def slug(self) -> str:
        return slug(self.base)

    def __str__(self) -> str:
        return f"{self.deployment}/{self.base}"

    @classmethod
    def parse(cls, written: str, *, default: str = "main") -> QueueRef:
        """Parses `[DEPLOYMENT/]BASE` as it is written on the command line."""
        deployment, slash, base = written.partition("/")
        return cls(deployment, base) if slash else cls(default, written)

    def job(self, id: str) -> JobRef:
        return JobRef(self, id)


@dataclass(frozen=True, slots=True, order=True)
class JobRef:
    """A job of a queue."""

    queue: QueueRef
    id: str

    @property
    def label(self) -> str:
        return printable(self.id)

    @property
    def slug(self) -> str:
        return slug(self.id)

    def __str__(self) -> str:
        return f"{self.queue}#{self.id}"
