"""Sends the heartbeat of a process without a port, so that systemd or a container runtime notices if it hangs.

It goes to systemd as WATCHDOG=1 (the unit has WatchdogSec), and into the file of UNSTALL_HEARTBEAT_PATH. The file has
the time since the machine started, because a wall clock that jumps must restart nobody.

    python -m recovery.processes.heartbeat

ends with 0 when that file is young enough, with 1 and the reason when it is not, with 2 when no file is named.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from recovery.shared_clock import steady

log = logging.getLogger(__name__)

FILE = "UNSTALL_HEARTBEAT_PATH"
NOTIFY = "NOTIFY_SOCKET"  # of systemd
EVERY = 5.0  # seconds
TOO_OLD = 30.0
_WRONG_CALL = 2


class Heartbeat:
    def __init__(self, environ: Mapping[str, str]) -> None:
        self._file = Path(environ[FILE]) if environ.get(FILE) else None
        self._socket = environ.get(NOTIFY, "")
        self._beat_at: float | None = None

    def beat(self) -> None:
        """Sends a heartbeat, at most every 5 s however often it is called; the first also reports READY=1."""
        now = steady()
        if self._beat_at is not None and now - self._beat_at < EVERY:
            return
        self._beat_at = now
        self._notify("READY=1\nWATCHDOG=1")
        if self._file is None:
            return
        try:
            new = self._file.with_name(f"{self._file.name}.new")
            new.write_text(f"{now:.3f}\n")
            new.replace(self._file)
        except OSError as error:
            log.warning("the heartbeat cannot be written to %s: %s", self._file, error.strerror)

    def end(self) -> None:
        """Reports an orderly end: STOPPING=1, and removes the file."""
        self._notify("STOPPING=1")
        if self._file:
            self._file.unlink(missing_ok=True)

    def _notify(self, said: str) -> None:
        if not self._socket:
            return
        place = f"\0{self._socket[1:]}" if self._socket.startswith("@") else self._socket
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(said.encode(), place)


def trouble(file: Path) -> str:
    """Returns why the process cannot be shown to run; "" if its heartbeat is recent."""
    try:
        age = steady() - float(file.read_text())
    except OSError as error:
        return f"{file}: {error.strerror}"
    except ValueError:
        return f"{file} is not a heartbeat"
    return f"the last heartbeat is {age:.0f} s old" if age > TOO_OLD else ""


def main(environ: Mapping[str, str]) -> int:
    if not environ.get(FILE):
        print(f"{FILE} is not set", file=sys.stderr)  # noqa: T201 -- the answer of a command
        return _WRONG_CALL
    found = trouble(Path(environ[FILE]))
    if found:
        print(found, file=sys.stderr)  # noqa: T201 -- as above
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(os.environ))
