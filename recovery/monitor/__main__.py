"""`python -m recovery.monitor`: needs UNSTALL_STATE_URL, and nothing of Django or the database."""

from __future__ import annotations

import os
import sys

from recovery.monitor.agent import run

if __name__ == "__main__":
    sys.exit(run(os.environ))
