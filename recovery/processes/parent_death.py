"""Runs a command that cannot outlive the process that started it: `parent_death.py PARENT FD SIGNAL COMMAND…`.

Started by its path, without the project, so that it costs a few milliseconds. On Linux the kernel sends the
signal when the parent dies. Elsewhere a small watcher holds the reading end of a pipe (FD) whose other end only
the parent has: when it closes, the watcher signals the whole process group.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys

PR_SET_PDEATHSIG = 1
MANY = 256  # more descriptors than a child inherits
WATCH_EVERY = 2.0  # seconds after which the watcher notices that the command ended by itself


def main(arguments: list[str]) -> None:
    parent, pipe, death, command = int(arguments[0]), int(arguments[1]), int(arguments[2]), arguments[3:]
    if not _ask_kernel(death):
        _watch(pipe, death)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    os.close(pipe)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the command is the parent's own
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def _ask_kernel(death: int) -> bool:
    if not sys.platform.startswith("linux") or os.environ.get("LEASH") == "pipe":
        return False
    return bool(ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, death, 0, 0, 0) == 0)


def _watch(pipe: int, death: int) -> None:
    command = os.getpid()
    if os.fork():
        return
    for ignored in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # meant for the command, which we outlast briefly
        signal.signal(ignored, signal.SIG_IGN)
    os.closerange(0, pipe)
    os.closerange(pipe + 1, MANY)  # or a reader of the command's output would wait for the watcher
    while os.getppid() == command:
        if select.select([pipe], [], [], WATCH_EVERY)[0] and not os.read(pipe, 1):
            (os.killpg if os.getpgrp() == command else os.kill)(command, death)
            break
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
