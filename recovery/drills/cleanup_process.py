"""`python -m recovery.drills.cleanup_process BASE [DEPLOYMENT]`: cleans up after its standard input has ended.

Only the drill has the other end of it, so it ends when the drill does, in whatever way: after the last round, by
Ctrl-C, or by SIGKILL. The process prints how many keys it deleted.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from recovery import config
from recovery.backends import client_list
from recovery.domain.drills.plan import is_drill
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.drills.location import deployment_of_drill
from recovery.errors import StoreError, UnstallError
from recovery.stores.redis.client import Command, StoreClient
from recovery.stores.registry import open_wire

# -- cleanup
# Deletes every key of one drill, and no other, in small slices, so that other clients need not wait.


COUNT = 1000  # keys a SCAN call visits: 1 ms of the server at worst
BATCH = 100  # keys a call removes; UNLINK frees them in the background
PASSES = 5  # a command that a dying worker has sent may be executed after the first
LEAVING = 5.0  # seconds for the connections of dead workers to be closed
PAUSE = 0.1  # seconds between two reads of the client list

_GLOB = re.compile(rb"([*?\[\]\\^-])")


def sweep(wire: StoreClient, base: str) -> int:
    """Deletes the keys; returns how many. Raises StoreError, and ValueError for a base that no drill has."""
    if not is_drill(base):
        raise ValueError(f"not a drill's: {base!r}")
    _until_left(wire, base)
    removed = 0
    for _ in range(PASSES):
        found = _pass(wire, encode_name(base) + b":")
        removed += found
        if not found:
            break
    return removed


def _until_left(wire: StoreClient, base: str) -> None:
    """Waits until the workers are disconnected: a dying one may still write. If CLIENT LIST is refused, the passes have
    to do.
    """
    ends, ref = time.monotonic() + LEAVING, QueueRef("", base)
    while time.monotonic() < ends:
        listings = wire.each_node((b"CLIENT", b"LIST")).values()
        if not any(client_list.parse(listing, [ref]) for listing in listings if isinstance(listing, bytes)):
            return
        time.sleep(PAUSE)


def _pass(wire: StoreClient, head: bytes) -> int:
    node, cursor, removed = wire.nodes()[0], b"0", 0
    pattern = _GLOB.sub(rb"\\\1", head) + b"*"
    while True:
        started = time.monotonic()
        cursor, keys = _one(wire, node, (b"SCAN", cursor, b"MATCH", pattern, b"COUNT", COUNT))
        own = [key for key in keys if key.startswith(head)]
        for at in range(0, len(own), BATCH):
            _one(wire, node, (b"UNLINK", *own[at : at + BATCH]))
        removed += len(own)
        if cursor == b"0":
            return removed
        time.sleep(time.monotonic() - started)  # half of the server's time at most


def _one(wire: StoreClient, node: str, command: Command) -> Any:
    reply = wire.at(node, [command])[0]
    if isinstance(reply, Exception):
        raise StoreError(wire.target, str(reply))
    return reply


# -- cleanup process


_ROOT = Path(__file__).parents[2]
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # meant for the drill, which this process outlives briefly
TRIES = 3  # a store that is away for a moment
PATIENCE = 60.0  # seconds for it to be done


@dataclass(frozen=True, slots=True)
class CleanupProcess:
    """Separate process that deletes the keys of a drill. It has to run before anything is written."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, base: str, deployment: str) -> Self:
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))
        command = [sys.executable, "-m", "recovery.drills.cleanup_process", base, deployment]
        return cls(
            subprocess.Popen(  # noqa: S603 - the command is our own
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )
        )

    def finish(self) -> tuple[int | None, str]:
        """Returns how many keys were deleted; None and the reason when it cannot be known."""
        try:
            said, _ = self.process.communicate("", timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return None, "Cleaning up takes longer than expected, and continues."
        said = said.strip()
        return (int(said), "") if self.process.returncode == 0 and said.isdigit() else (None, said[-300:])


def main(base: str, deployment: str = "") -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    sys.stdin.buffer.read()
    where = deployment_of_drill(config.current(), deployment)
    print(_clean(open_wire(where), base))  # noqa: T201 - read by the drill


def _clean(wire: StoreClient, base: str) -> int:
    for tries_left in reversed(range(TRIES)):
        try:
            return sweep(wire, base)
        except UnstallError:
            if not tries_left:
                raise
    raise AssertionError


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except UnstallError as error:
        sys.exit(str(error))
