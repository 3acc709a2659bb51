"""The units of deploy/ work under what they forbid: each program is run by its ExecStart, confined as systemd would."""

from __future__ import annotations

import shutil
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from ctypes.util import find_library
from pathlib import Path

import pytest

from recovery.stores.state import state_keys
from tests.support.patience import patience
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import ROOT, WebProcess, environ_of
from tests.support.stores.stores import Store
from tests.support.stuck.watching import bullmq
from tests.support.waiting import until

UNITS = ROOT / "deploy"
WEB = UNITS / "unstall-web@.service"
# Each writes "yes" when it was let do what no program of ours needs.
FORBIDDEN = {
    "memory that is written and executed": "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_WRITE | mmap.PROT_EXEC)",
    "another user's files": "import os; os.chown('.', 1, 1)",
    "a namespace": "import ctypes; assert not ctypes.CDLL(None).unshare(0x10000000)",
    "raw network": "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "processors": "import os; os.sched_setaffinity(0, {0})",
}

pytestmark = [pytest.mark.usefixtures("processes"), pytest.mark.timeout(180)]


@pytest.fixture(autouse=True)
def _needed() -> None:
    if not shutil.which("systemd-analyze") or not find_library("seccomp"):
        pytest.skip("systemd-analyze or libseccomp is not installed")


def confined(unit: str, *arguments: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.processes.confined", str(UNITS / unit), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=patience(60), check=False
    )


def test_what_no_program_of_ours_needs_is_refused(tmp_path: Path) -> None:
    """Or the tests below would say nothing."""
    tried = {
        what: confined(WEB.name, "-c", f"{code}; print('yes')", environ=environ_of(tmp_path))
        for what, code in FORBIDDEN.items()
    }
    assert [what for what, ended in tried.items() if "yes" in ended.stdout or not ended.returncode] == []
    allowed = confined(WEB.name, "-c", "import socket; socket.socket(); print('yes')", environ=environ_of(tmp_path))
    assert allowed.stdout == "yes\n", allowed.stderr


def test_migrate_makes_a_database_of_its_own(tmp_path: Path) -> None:
    ended = confined("unstall-migrate.service", environ=environ_of(tmp_path))
    assert ended.returncode == 0, ended.stderr
    database = tmp_path / "unstall.sqlite3"
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT count(*) FROM django_migrations").fetchone()[0] > 5


@pytest.fixture
def site(valkey: Store, state_store: Store) -> Iterator[WebProcess]:
    bullmq(valkey.client, "bull:mail")
    environ = {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url}
    with WebProcess(environ, unit=WEB) as web:
        yield web


async def test_web_serves_pages_files_streams_and_the_gate(site: WebProcess) -> None:
    for path in ("/login", "/static/css/tokens.css", "/readyz"):
        until(lambda path=path: site.get(path).status == 200, 20, path)  # type: ignore[misc]
    assert site.get("/queues", "admin").status == 200
    assert site.get("/password", "admin", method="GET").status == 200
    async with site.tab("admin") as tab:
        assert tab.status == 200
        await tab.next("tick", 30)
    assert "Traceback" not in site.log


def test_scheduler_reads_the_queues_and_leads(
    valkey: Store, state_store: Store, site: WebProcess, tmp_path: Path
) -> None:
    environ = environ_of(site.directory, {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url})
    command = [sys.executable, "-m", "tests.support.processes.confined", str(UNITS / "unstall-scheduler.service")]
    with (tmp_path / "log").open("wb") as log:
        scheduler = spawn(command, environ=environ, directory=ROOT, stdout=log, stderr=log)
    try:
        until(lambda: state_store.client.exists(state_keys.SNAPSHOT), 60, "a snapshot")
        until(lambda: b"bull:mail" in site.get("/queues", "viewer").body, 30, "the queue on the page")
    finally:
        end(scheduler, seconds=15)
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_monitor_tells_of_its_server_and_ships_its_logs(state_store: Store, tmp_path: Path) -> None:
    (tmp_path / "worker.log").write_text("")
    own = {"UNSTALL_SERVER_ID": "eu-1", "UNSTALL_LOG_FILES": str(tmp_path / "*.log")}
    environ = {**environ_of(tmp_path), "UNSTALL_STATE_URL": state_store.url, **own}
    command = [sys.executable, "-m", "tests.support.processes.confined", str(UNITS / "unstall-monitor.service")]
    with (tmp_path / "said").open("wb") as said:
        monitor = spawn(command, environ=environ, directory=ROOT, stdout=said, stderr=said)
    try:
        until(lambda: state_store.client.exists(state_keys.server_metrics("eu-1")), 30, "a sample")
        with (tmp_path / "worker.log").open("a") as log:
            log.write("a line of a worker\n")
        until(lambda: state_store.client.exists(state_keys.logs("eu-1")), 30, "its lines")
    finally:
        end(monitor)
    assert "Traceback" not in (tmp_path / "said").read_text()
