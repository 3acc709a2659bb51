"""Which version it is, wherever that is said, and that pip installs none."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dashboard.accounts.roles import UserRole
from recovery.version import VERSION
from tests.support.people import browser, person
from tests.support.processes.web_process import ROOT


def test_it_is_that_of_the_project() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == VERSION


def test_the_shell_says_it_without_any_setting() -> None:
    told = subprocess.run(
        [sys.executable, "manage.py", "--version"], cwd=ROOT, env={}, capture_output=True, text=True, check=True
    )
    assert told.stdout == f"Unstall {VERSION}\n"


def test_pip_does_not_claim_to_have_installed_it(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--no-index",
        "--no-deps",
        "--target",
        str(tmp_path / "there"),
        ".",
    ]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode != 0
    assert "it runs from its directory" in told.stdout + told.stderr
    assert not list(tmp_path.glob("there/*"))


@pytest.mark.django_db
def test_a_page_says_it() -> None:
    assert f"Unstall {VERSION}" in browser(person(UserRole.VIEWER)).get("/audit").content.decode()
