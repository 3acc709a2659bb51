"""What the tests of the OpenAPI document share: tokens for a real web process, and the programs of tests/openapi."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from dashboard.accounts import token_scopes, tokens
from dashboard.accounts.token_scopes import TokenScope
from tests.support.processes.driver import node
from tests.support.processes.web_process import ROOT, WebProcess

FOLDER = ROOT / "tests" / "openapi"
MODULES = FOLDER / "node_modules"
_INSERT = (
    "INSERT INTO dashboard_machinetoken (name, token_hash, prefix, scopes, created_at, expires_at)"
    " VALUES (?, ?, ?, ?, datetime('now'), datetime('now', '+1 day'))"
)


def token_of(web: WebProcess, *allowed: TokenScope) -> str:
    """Adds a token with these scopes to the database of the web process."""
    written = tokens.MARK + secrets.token_hex(20)
    web.change(
        _INSERT,
        secrets.token_hex(4),
        tokens.digest(written),
        written[:14],
        token_scopes.format_scopes(frozenset(allowed)),
    )
    return written


def need(package: str) -> None:
    """Skips the test when a Python package of the extra `test` is not installed."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed (make setup-test does it)")


def node_program(path: str) -> list[str]:
    """Returns the command of a program in tests/openapi/node_modules, or skips the test."""
    program = node()
    if program is None or not (MODULES / path).exists():
        pytest.skip("tests/openapi/node_modules is missing; `make test-all` installs it")
    return [str(program), str(MODULES / path)]


def run(
    command: list[str], directory: Path, environ: Mapping[str, str] | None = None, *, seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    # The generator for Python formats what it writes with ruff, which lies beside it.
    path = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environ = {**os.environ, **path, **(environ or {})}
    return subprocess.run(
        command, cwd=directory, env=environ, capture_output=True, text=True, timeout=seconds, check=False
    )


def succeed(command: list[str], directory: Path, environ: Mapping[str, str] | None = None) -> str:
    """Runs a command that must exit with 0, and returns what it printed."""
    ran = run(command, directory, environ)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
