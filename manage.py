#!/usr/bin/env python
"""The command line: `manage.py up`, `manage.py web`, and everything under `recovery/management/commands`."""

import os
import sys

from recovery.processes import memory


def main() -> None:
    if sys.argv[1:2] == ["web"]:
        memory.choose()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
    try:
        from django.core.management import execute_from_command_line  # noqa: PLC0415 - a clear sentence needs the try
    except ImportError:
        sys.exit("Django is not installed here. Run `make setup`, then use .venv/bin/python.")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
