"""Typed readers of the environment that refuse nonsense and remember every problem, so that all are told at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from recovery.errors import Problem

T = TypeVar("T")
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class Environment:
    """Reads names like `UNSTALL_DEBUG`. A bad value becomes an entry of `problems`, and the default is used meanwhile.

    Every name may also come from a file: `NAME_FILE=/run/secrets/name`, as container platforms hand out secrets.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = values
        self.problems: list[Problem] = []

    def text(self, name: str, default: str = "") -> str:
        written = self._written(name)
        return default if written is None else written

    def flag(self, name: str, default: bool) -> bool:
        return self._read(name, default, _truth, "Write true or false.")

    def number(self, name: str, default: int, *, least: int = 0, most: int = 2**31) -> int:
        def bounded(written: str) -> int:
            value = int(written)
            if not least <= value <= most:
                raise ValueError
            return value

        return self._read(name, default, bounded, f"Write a whole number from {least} to {most}.")

    def choice(self, name: str, default: str, known: tuple[str, ...]) -> str:
        def one_of(written: str) -> str:
            if written.lower() not in known:
                raise ValueError
            return written.lower()

        return self._read(name, default, one_of, f"Write one of {', '.join(known)}.")

    def names(self, name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        written = self._written(name)
        if written is None:
            return default
        return tuple(part for part in (part.strip() for part in written.split(",")) if part)

    def origins(self, name: str) -> tuple[str, ...]:
        """A list of `https://host[:port]`, nothing behind it."""
        found = self.names(name)
        for origin in found:
            if not _is_origin(origin):
                self.refuse(name, f"{origin!r} is not an origin.", "Write scheme and host: https://unstall.example.com")
        return tuple(origin.rstrip("/") for origin in found if _is_origin(origin))

    def url(self, name: str, default: str, *, schemes: tuple[str, ...]) -> str:
        """A URL with one of `schemes`. The value is never repeated in the problem: it may hold a password."""
        written = self.text(name, default)
        if "://" not in written or urlsplit(written).scheme not in schemes:
            self.refuse(name, "is not a URL that can be used here.", f"It begins with {' or '.join(schemes)}, then ://")
            return default
        try:
            _ = urlsplit(written).port
        except ValueError:
            remedy = "Percent-encode what is special in its password: / is %2F, ? is %3F, # is %23, @ is %40."
            self.refuse(name, "is a URL whose host and port cannot be read.", remedy)
            return default
        return written

    def refuse(self, name: str, problem: str, remedy: str) -> None:
        self.problems.append(Problem(name, problem, remedy))

    def _read(self, name: str, default: T, reader: Callable[[str], T], remedy: str) -> T:
        written = self._written(name)
        if written is None:
            return default
        try:
            return reader(written)
        except ValueError:
            self.refuse(name, f"{written!r} cannot be read.", remedy)
            return default

    def _written(self, name: str) -> str | None:
        """The value, "" counting as not written: an empty line in a compose file means nothing."""
        direct = self._values.get(name, "").strip()
        path = self._values.get(f"{name}_FILE", "").strip()
        if direct and path:
            self.refuse(name, f"{name} and {name}_FILE are both set.", "Keep one of them.")
        if direct or not path:
            return direct or None
        return self._from_file(name, Path(path))

    def _from_file(self, name: str, path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            self.refuse(f"{name}_FILE", f"{path} cannot be read: {reason}.", "Check the path and who may read it.")
            return None


def _truth(written: str) -> bool:
    if written.lower() in _YES:
        return True
    if written.lower() in _NO:
        return False
    raise ValueError(written)


def _is_origin(written: str) -> bool:
    parts = urlsplit(written)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and parts.path in ("", "/") and not parts.query
