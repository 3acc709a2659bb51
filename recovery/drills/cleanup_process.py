"""`python -m recovery.drills.cleanup_process BASE [DEPLOYMENT]`: cleans up after its standard input has ended.

Only the drill has the other end of it, so it ends when the drill does, in whatever way: after the last round, by
Ctrl-C, or by SIGKILL. The process prints how many keys it deleted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from recovery import config
from recovery.drills.cleanup import sweep
from recovery.drills.location import deployment_of_drill
from recovery.errors import UnstallError
from recovery.stores.redis.client import StoreClient
from recovery.stores.registry import open_wire

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
