"""Several processes that spend from the same safety limits at once: on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.domain.time_units import MINUTE
from tests.support.processes.processes import spawn
from tests.support.processes.web_process import ROOT, environ_of
from tests.support.stores.furnished import KINDS

LIMIT, TRIES, PROCESSES = 40, 30, 3
pytestmark = pytest.mark.timeout(180)

# Prints when each auto-retry was granted, and how often a job that all of them auto-retry was let go.
_SPENDS = f"""
import json, django
django.setup()
from recovery.actions.safety_limits import auto_retry_limits as limits
from recovery.domain.safety_limits.retry_budget import RetryBudgetLimit
from recovery.domain.identifiers import QueueRef
queue, limit, granted, went = QueueRef("main", "bull:mail"), RetryBudgetLimit({LIMIT}), [], 0
for _ in range({TRIES}):
    grant = limits.take_budget(queue, 2, limit)
    limits.return_budget(queue, grant, 0)
    granted += [grant.at] * grant.count
    went += len(limits.admit_retries(queue, {{"shared": limits.AutoRetryCandidate("timeout")}}))
print(json.dumps([granted, went]))
"""
_TELLS = """
import json, django
django.setup()
from recovery.actions.safety_limits import auto_retry_limits as limits
from recovery.domain.identifiers import QueueRef
queue = QueueRef("main", "bull:mail")
made = limits.retry_histories(queue, ["shared"])["shared"].made
print(json.dumps([made, len(limits.unsettled_retries(queue)[queue])]))
"""


@pytest.fixture(params=KINDS)
def environ(request: pytest.FixtureRequest, our_database: Callable[[str, Path], str], tmp_path: Path) -> dict[str, str]:
    """Of processes that share one database with our tables."""
    own = {"DJANGO_SETTINGS_MODULE": "dashboard.settings", "DATABASE_URL": our_database(request.param, tmp_path)}
    return environ_of(tmp_path, own)


def test_nothing_is_granted_twice_and_nothing_is_forgotten(environ: dict[str, str]) -> None:
    spenders = [_start(_SPENDS, environ) for _ in range(PROCESSES)]
    told = [_told(spender) for spender in spenders]
    granted = sorted(at for times, _ in told for at in times)
    assert len(granted) >= LIMIT
    assert all(sum(at - MINUTE < one <= at for one in granted) <= LIMIT for at in granted)
    made, out = _told(_start(_TELLS, environ))
    assert made == sum(went for _, went in told) == PROCESSES * TRIES
    assert out == 1


def _start(code: str, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", code]
    return spawn(command, directory=ROOT, environ=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _told(process: subprocess.Popen[bytes]) -> list[list[int] | int]:
    told, trouble = process.communicate(timeout=150)
    assert process.returncode == 0, trouble.decode()
    found: list[list[int] | int] = json.loads(told)
    return found
