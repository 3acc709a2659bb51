#!/usr/bin/env python
"""The command line: `manage.py up`, `manage.py web`, and everything under `recovery/management/commands`."""

import io
import os
import sys

from recovery.processes import malloc, private_files
from recovery.version import VERSION

_SIGPIPE = 128 + 13  # what a shell shows for a process that the signal has ended


def main() -> None:
    # A pipe or a log gets each line when it is written: the link of `up` is of no use at the end.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    if sys.argv[1:] == ["--version"]:  # Django would say its own
        print(f"Unstall {VERSION}")  # noqa: T201 -- the answer of a command
        return
    if sys.argv[1:2] != ["collectstatic"]:  # what it copies is for everybody, a proxy of another user among them
        private_files.make_new_files_private()
    if sys.argv[1:2] == ["web"]:
        malloc.use_libc_malloc()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    try:
        from django.core.management import execute_from_command_line  # noqa: PLC0415 - a clear sentence needs the try
    except ImportError:
        sys.exit("Django is not installed here. Run `make setup`, then use .venv/bin/python.")
    try:
        execute_from_command_line(sys.argv)
    except BrokenPipeError:  # `| head` has read enough
        _leave_pipe()


def _leave_pipe() -> None:
    """Ends the process as a shell's own commands end when nobody reads their output any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed to there
    sys.exit(_SIGPIPE)


if __name__ == "__main__":
    main()
