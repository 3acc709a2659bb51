"""No two servers of the tests get one port, also before the first of them listens."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import ROOT

_TAKE = (
    "import json; from tests.support.processes.processes import free_port; "
    "print(json.dumps([free_port() for _ in range(300)]))"
)


def test_processes_that_ask_at_once_get_different_ports() -> None:
    children = [spawn([sys.executable, "-c", _TAKE], directory=ROOT, stdout=subprocess.PIPE) for _ in range(4)]
    try:
        ports = [port for child in children for port in json.loads(child.communicate(timeout=60)[0])]
    finally:
        for child in children:
            end(child)
    assert len(set(ports)) == len(ports) == 1200
