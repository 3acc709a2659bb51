"""The start is refused with every problem at once. In a process of its own: settings are read once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def check(tmp_path: Path, **values: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("UNSTALL_")}
    environ = {**kept, "UNSTALL_DATA_DIR": str(tmp_path / "data"), **values}
    command = [sys.executable, str(ROOT / "manage.py"), "check"]
    return subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_every_problem_is_told_at_once_with_key_and_remedy(tmp_path: Path) -> None:
    ended = check(
        tmp_path,
        UNSTALL_DEBUG="perhaps",
        UNSTALL_SESSION_DAYS="-1",
        UNSTALL_TRUSTED_ORIGINS="unstall.example.com",
        UNSTALL_SECRET_KEY="hunter2",
        DATABASE_URL="mysql://root:hunter2@db/x",
        UNSTALL_REDIS_URL="http://user:hunter2@db",
    )
    assert ended.returncode == 1
    assert "Traceback" not in ended.stderr
    for key in ("DEBUG", "SESSION_DAYS", "TRUSTED_ORIGINS", "SECRET_KEY", "REDIS_URL"):
        assert f"UNSTALL_{key}: " in ended.stderr
    assert "DATABASE_URL: " in ended.stderr
    assert ended.stderr.count("HINT: ") >= 6
    assert "unstall.E001" in ended.stderr
    assert "unstall.E002" in ended.stderr
    assert "hunter2" not in ended.stderr


def test_a_good_configuration_is_silent(tmp_path: Path) -> None:
    ended = check(tmp_path, UNSTALL_REDIS_URL="redis://127.0.0.1:6379")
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


def test_a_door_that_is_open_to_nobody_is_a_warning(tmp_path: Path) -> None:
    ended = check(tmp_path, UNSTALL_BIND="0.0.0.0:8000", UNSTALL_DEBUG="yes")
    assert ended.returncode == 0
    assert "unstall.W001" in ended.stderr
    assert "unstall.W002" in ended.stderr
