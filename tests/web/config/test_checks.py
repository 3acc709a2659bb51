"""The start is refused with every problem at once. In a process of its own: settings are read once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


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


def test_what_lets_clients_choose_their_address_or_our_name_stops_the_start(tmp_path: Path) -> None:
    ended = check(tmp_path, UNSTALL_TRUSTED_PROXIES="*", UNSTALL_ALLOWED_HOSTS="*")
    assert ended.returncode == 1
    assert ended.stderr.count("unstall.E001") == 2
    for key in ("UNSTALL_TRUSTED_PROXIES: '*' lets clients", "UNSTALL_ALLOWED_HOSTS: '*' lets other sites"):
        assert key in ended.stderr


def exposed(tmp_path: Path, **values: str) -> list[str]:
    """What is said of settings that are wrong together: settings and configuration alone, without the pages."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("UNSTALL_")}
    environ |= {"UNSTALL_DATA_DIR": str(tmp_path / "data"), "DJANGO_SETTINGS_MODULE": "dashboard.settings", **values}
    said = "from dashboard import checks; print(*(f'{e.id} {e.msg} {e.hint}' for e in checks.exposure()), sep='\\n')"
    ended = subprocess.run(
        [sys.executable, "-c", said], cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout.strip().splitlines()


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("UNSTALL_TRUSTED_ORIGINS", {"UNSTALL_TRUSTED_ORIGINS": "https://a.example,http://b.example"}),
        ("UNSTALL_BIND", {"UNSTALL_BIND": "0.0.0.0:8000", "UNSTALL_ALLOWED_HOSTS": "a.example"}),
        ("UNSTALL_ENVIRONMENT", {"UNSTALL_ENVIRONMENT": "production"}),
    ],
)
def test_plain_http_is_a_warning_with_its_key_and_remedy(tmp_path: Path, key: str, values: dict[str, str]) -> None:
    (said,) = exposed(tmp_path, **values)
    assert said.startswith(f"unstall.W003 {key}: ")
    assert "Put a proxy with TLS in front" in said


@pytest.mark.parametrize(
    "values",
    [
        {"UNSTALL_TRUSTED_ORIGINS": "http://localhost:8000,http://127.0.0.1:8000"},
        {"UNSTALL_ENVIRONMENT": "production", "UNSTALL_TRUSTED_ORIGINS": "https://a.example"},
        {"UNSTALL_BIND": "0.0.0.0:8000", "UNSTALL_TRUSTED_ORIGINS": "https://a.example"},
    ],
)
def test_what_is_of_this_machine_or_behind_tls_is_no_warning(tmp_path: Path, values: dict[str, str]) -> None:
    assert exposed(tmp_path, **values) == []
