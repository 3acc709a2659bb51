"""Loads Lua scripts by file, with their shared parts put in, and calls them by their digest.

A script is one file; a line `--- include NAME` is replaced by `NAME.lua` of the same folder's `parts/`, or of those
that all libraries share (`backends/shared`). The server is sent the digest; only when it does not know it (a restart,
SCRIPT FLUSH, a new master) the whole text follows. A script that may have run is never sent twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import redis

from recovery.stores.redis.pipeline import Command

_INCLUDE = re.compile(r"^--- include ([a-z-]+)$", re.MULTILINE)

Part = bytes | str | int


class ScriptClient(Protocol):
    def call(self, commands: Sequence[Command]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Script:
    """Lua script. `run` returns what the script returned; its own errors are raised as redis.ResponseError."""

    name: str
    text: bytes
    digest: str

    def run(self, wire: ScriptClient, keys: Sequence[Part], args: Sequence[Part]) -> Any:
        """Runs the script with at least one key, all of one slot: it decides which node runs it."""
        (reply,) = wire.call([("EVALSHA", self.digest, len(keys), *keys, *args)])
        if isinstance(reply, redis.exceptions.NoScriptError):
            (reply,) = wire.call([("EVAL", self.text, len(keys), *keys, *args)])
        if isinstance(reply, Exception):
            raise reply
        return reply

    def commands(self, runs: Sequence[tuple[Sequence[Part], Sequence[Part]]]) -> list[Command]:
        """Returns a command for each (keys, args), for a server that knows the script; another answers NOSCRIPT."""
        return [("EVALSHA", self.digest, len(keys), *keys, *args) for keys, args in runs]

    def each(self, wire: ScriptClient, runs: Sequence[tuple[Sequence[Part], Sequence[Part]]]) -> list[Any]:
        """Runs the script for each (keys, args), in one batch: others are served between two of them.

        An error of one of them stays in the list.
        """
        known = self.commands(runs)
        replies = wire.call(known) if known else []
        unknown = [at for at, reply in enumerate(replies) if isinstance(reply, redis.exceptions.NoScriptError)]
        again: list[Command] = [("EVAL", self.text, *known[at][2:]) for at in unknown]
        for at, reply in zip(unknown, wire.call(again) if again else (), strict=True):
            replies[at] = reply
        return replies


@cache
def script(path: Path) -> Script:
    """Loads a script, once a process."""
    text = _whole(path).encode("utf-8")
    return Script(path.stem, text, hashlib.sha1(text, usedforsecurity=False).hexdigest())


def _whole(path: Path) -> str:
    """Returns the text with each part once, in front of where it is first asked for."""
    known: set[str] = set()
    folders = _parts_for(path)

    def put_in(text: str) -> str:
        def part(found: re.Match[str]) -> str:
            if found[1] in known:
                return ""
            known.add(found[1])
            own, shared = (folder / f"{found[1]}.lua" for folder in folders)
            return put_in((own if own.exists() else shared).read_text("utf-8"))

        return _INCLUDE.sub(part, text)

    return put_in(path.read_text("utf-8"))


def _parts_for(path: Path) -> tuple[Path, Path]:
    """Returns `<library>/lua/write/parts`, and the same beside the library in `redis_common`."""
    kind = path.parent
    return kind / "parts", kind.parents[2] / "redis_common" / "lua" / kind.name / "parts"
