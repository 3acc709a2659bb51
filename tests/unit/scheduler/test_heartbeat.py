"""The heartbeat of the scheduler: what systemd and a file hear, and when they hear nothing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.processes import heartbeat
from recovery.processes.heartbeat import FILE, NOTIFY, TOO_OLD, Heartbeat, main
from recovery.shared_clock import steady
from tests.support.processes.web_process import ROOT


@pytest.mark.usefixtures("processes")
def test_systemd_hears_the_start_each_beat_and_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setblocking(False)
        heart = Heartbeat({NOTIFY: str(tmp_path / "notify")})
        heart.beat()
        heart.beat()  # too soon
        assert systemd.recv(100) == b"READY=1\nWATCHDOG=1"
        with pytest.raises(BlockingIOError):
            systemd.recv(100)
        monkeypatch.setattr(heartbeat, "EVERY", 0.0)
        heart.beat()
        heart.end()
        assert [systemd.recv(100), systemd.recv(100)] == [b"READY=1\nWATCHDOG=1", b"STOPPING=1"]


def test_the_file_is_young_after_a_beat_old_without_one_and_gone_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "heartbeat"
    environ = {FILE: str(file)}
    assert main(environ) == 1
    heart = Heartbeat(environ)
    heart.beat()
    assert main(environ) == 0
    os.utime(file, (0, 0))  # a clock that is set says nothing
    assert main(environ) == 0
    file.write_text(f"{steady() - TOO_OLD - 1}\n")
    assert main(environ) == 1
    assert "31 s old" in capsys.readouterr().err
    file.write_text("")
    assert main(environ) == 1
    heart.end()
    assert not file.exists()


def test_a_heart_without_a_place_and_a_place_without_a_disk_stop_nobody(tmp_path: Path) -> None:
    Heartbeat({}).beat()
    Heartbeat({FILE: str(tmp_path / "none" / "heartbeat"), NOTIFY: str(tmp_path / "nobody")}).beat()
    assert main({}) == 2


@pytest.mark.usefixtures("processes")
def test_the_question_is_a_command_that_needs_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "heartbeat").write_text(f"{steady()}\n")
    loads = "import sys; from recovery.processes import heartbeat; print({'django', 'redis'} & set(sys.modules))"
    command = [sys.executable, "-m", "recovery.processes.heartbeat"]
    environ = {"PATH": os.environ["PATH"], FILE: str(tmp_path / "heartbeat")}
    assert subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0
    loaded = subprocess.run([sys.executable, "-c", loads], cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "set()"
