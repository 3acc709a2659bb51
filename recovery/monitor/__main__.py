"""Starts the monitor by `python -m recovery.monitor`: needs UNSTALL_STATE_URL, but no Django and no database."""

from __future__ import annotations

import os
import sys

from recovery.monitor.agent import run
from recovery.processes import private_files

if __name__ == "__main__":
    private_files.make_new_files_private()
    sys.exit(run(os.environ))
