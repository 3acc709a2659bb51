"""A worker of a table, in a process of its own without any settings of ours, takes back what it left when it died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recovery.errors import BadOrder, ConfigError, DeploymentMissing
from recovery.stores.registry import reset
from recovery.worker import sweep_at_start
from tests.support.stores.tables import REF, TABLE, Jobs, table_reader

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.django_db
# What an application is like: it marks a row as running, and works on it until it is killed.
WORKER = """
import json, logging, sys, time
from recovery.worker import sweep_at_start

logging.basicConfig(level=logging.INFO, stream=sys.stderr)
table, how = json.loads(sys.argv[1])
swept = sweep_at_start(table, **how)
print(json.dumps([swept.requeued, swept.failed, swept.left]), flush=True)
print(any(name.startswith("dashboard") for name in sys.modules), flush=True)
"""


def environ(**more: str) -> dict[str, str]:
    ours = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "UNSTALL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "PYTHONPATH": str(ROOT), **more}


def start(directory: Path, table: str = "jobs", **how: Any) -> tuple[list[int], str]:
    """One that sweeps and ends: what it came to, and what it logged."""
    command = [sys.executable, "-W", "error", "-c", WORKER, json.dumps([table, how])]
    ended = subprocess.run(
        command, cwd=directory, env=environ(), capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    counts, has_face = ended.stdout.splitlines()
    assert has_face == "False"
    found: list[int] = json.loads(counts)
    return found, ended.stderr


def test_a_table_that_is_described_is_swept(jobs: Jobs, tmp_path: Path) -> None:
    ids = [jobs.add("running", tries=tries) for tries in (0, 1, 2)]
    counts, log = start(tmp_path, url=jobs.place.url, described=TABLE)
    assert counts == [2, 1, 0]
    assert jobs.status(*ids) == ["pending", "pending", "failed"]
    assert "2 rows requeued, 1 failed" in log


def test_a_table_of_the_file_is_swept_for_its_owner(jobs: Jobs, tmp_path: Path) -> None:
    mine, other = jobs.add("running", worker="a", lease_until=600), jobs.add("running", worker="b")
    jobs.wire().close()  # it has written the file
    counts, _ = start(tmp_path, table="app/jobs", owner="a")
    assert counts == [1, 0, 1]
    assert jobs.status(mine, other) == ["pending", "running"]


TAKER = """
import signal, sys
import psycopg
signal.alarm(600)
with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    connection.execute("UPDATE jobs SET status = 'running', worker = 'a', started_at = now() WHERE status = 'pending'")
    print("taken", flush=True)
    signal.pause()
"""


def test_what_a_killed_worker_had_is_taken_back_by_the_next(postgresql: Any, tmp_path: Path) -> None:
    jobs = Jobs(postgresql, tmp_path)
    jobs.create()
    ids = [jobs.add("pending") for _ in range(3)]
    worker = subprocess.Popen(
        [sys.executable, "-c", TAKER, postgresql.url], env=environ(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "taken\n"
        assert set(jobs.status(*ids)) == {"running"}
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait(60)
        worker.stdout and worker.stdout.close()
    counts, _ = start(tmp_path, url=postgresql.url, owner="a", described=TABLE)
    assert counts == [3, 0, 0]
    assert set(jobs.status(*ids)) == {"pending"}
    assert jobs.one(ids[0], "error") == "orphaned by worker restart"


DJANGO = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "theirs"
from recovery.worker import sweep_at_start
import sys
described = {"state": "status", "queued": "pending", "finished_at": "finished_at", "attempts": "tries"}
swept = sweep_at_start("jobs", url=sys.argv[1], described=described)
print(swept.failed)
from django.conf import settings
print(settings.TIME_ZONE, settings.THEIRS)
"""


def test_an_application_of_django_keeps_its_own_settings(jobs: Jobs, tmp_path: Path) -> None:
    """Even with times that have no zone."""
    id = jobs.add("running", tries=2)
    (tmp_path / "theirs.py").write_text('USE_TZ = False\nTIME_ZONE = "Asia/Tokyo"\nTHEIRS = 1\nSECRET_KEY = "x"\n')
    ended = subprocess.run(
        [sys.executable, "-c", DJANGO, jobs.place.url], cwd=tmp_path, capture_output=True, text=True,
        env=environ(PYTHONPATH=f"{ROOT}:{tmp_path}"), timeout=120, check=False,
    )  # fmt: skip
    assert ended.stdout.split() == ["1", "Asia/Tokyo", "1"], ended.stderr
    wire = jobs.wire()
    finished = table_reader().row(wire, REF, id).finished_at
    assert finished == pytest.approx(table_reader().look(wire, REF).now, abs=120_000)


def test_a_call_that_cannot_be_meant_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/app.sqlite3"
    with pytest.raises(BadOrder, match="DATABASE/TABLE"):
        sweep_at_start("jobs")
    with pytest.raises(BadOrder, match="only together with the url"):
        sweep_at_start("app/jobs", described={"state": "status"})
    with pytest.raises(ConfigError, match="colour"):
        sweep_at_start("jobs", url=url, described={"colour": "red"})
    with pytest.raises(BadOrder, match="no owner column"):
        sweep_at_start("jobs", url=url, owner="a")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNSTALL_CONFIG", raising=False)
    reset()
    with pytest.raises(DeploymentMissing):
        sweep_at_start("app/jobs")
