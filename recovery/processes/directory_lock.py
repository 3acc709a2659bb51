"""Locks a directory for one process at a time, and for the children that inherit the lock."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path


class DirectoryLocked(Exception):
    """Raised if another process has the lock; `holder` is the process id in the file."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        super().__init__(holder)


def lock_directory(path: Path, *, patience: float, given_up: Callable[[float], bool]) -> int:
    """Locks the file and returns its descriptor; the lock ends with the last process that has the descriptor.

    Waits if the holder is gone: a killed process may have left a child that is still saving. Raises Taken.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            if _lives(holder) or time.monotonic() > deadline or given_up(0.1):
                os.close(descriptor)
                raise DirectoryLocked(holder) from None
        else:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return descriptor


def is_locked(path: Path) -> bool:
    """Returns True if a process has the lock now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that two such checks do not collide
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _lives(holder: str) -> bool:
    try:
        os.kill(int(holder), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:  # it lives, as another user
        return True
    return True
