"""Identifies the process that has the lease, so that another one on the same machine can know that it is dead.

So a scheduler that was killed and started again leads at once, and does not wait for its own old lease to expire.
"""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import astuple, dataclass
from pathlib import Path

_PROC = Path("/proc")
_HOST = 200  # characters of a host's name: the whole must fit into its column
_STATE, _STARTED = 0, 19  # fields of /proc/PID/stat behind the name in brackets
_GONE = frozenset("ZXx")  # zombies and dead processes


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    host: str
    pid: int
    started: int  # ticks since the boot, 0: not known; tells two processes of one number apart
    place: str  # the boot and the process namespace in which `pid` means something, "": not known
    token: str  # unique for each process

    @classmethod
    def here(cls) -> LeaseHolder:
        pid = os.getpid()
        host = "".join(socket.gethostname().split())[:_HOST]
        return cls(host or "?", pid, _started(pid), _place(), uuid.uuid4().hex)

    @classmethod
    def parse(cls, text: str) -> LeaseHolder | None:
        """Parses a stored holder; None for one that this version did not write."""
        try:
            host, pid, started, place, token = text.split(" ")
            return cls(host, int(pid), int(started), place, token)
        except ValueError:
            return None

    def __str__(self) -> str:
        return " ".join(map(str, astuple(self)))

    @property
    def shown(self) -> str:
        return f"{self.host} (process {self.pid})"

    def is_dead(self, place: str) -> bool:
        """Returns True if the process is known to be dead; False if that cannot be seen from `place`."""
        if not self.place or self.place != place:
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass
        return bool(self.started) and _started(self.pid, unseen=self.started) != self.started


def _started(pid: int, *, unseen: int = 0) -> int:
    """Returns when a process started (ticks), 0 for one that has ended, `unseen` if /proc cannot be read."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return unseen
    return 0 if fields[_STATE] in _GONE else int(fields[_STARTED])


def _place() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""
