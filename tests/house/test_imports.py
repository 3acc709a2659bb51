"""The import contracts of pyproject.toml hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.usefixtures("processes")
def test_arrows_point_down_only() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.usefixtures("processes")
def test_plotly_is_found_and_never_imported() -> None:
    """Its import costs half a second of every start, and a page needs only its script."""
    script = "import django, sys; django.setup(); import dashboard.urls; sys.exit('plotly' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", script], cwd=ROOT, timeout=60, check=False)
    assert ended.returncode == 0
