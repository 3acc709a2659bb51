"""Every file of ours can be read in one sitting, is finished, and names no registry."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = {".py": 400, ".lua": 80, ".mjs": 150, ".js": 150, ".css": 150, ".html": 80}
# Each word is put together, so that this file is not one that holds it.
UNFINISHED = re.compile("|".join(f"\\b{word}\\b" for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")))
# Where packages come from is the business of whoever installs them: no lock, script or page may say it.
REGISTRIES = re.compile(
    "pypi\\.o" + "rg|python" + "hosted\\.|registry\\.np" + "mjs|registry\\.ya" + "rnpkg|unpkg\\.c" + "om"
)
BINARY = {".png", ".ico", ".woff2"}


def _ours() -> list[str]:
    """Every file that git knows or would take in; without git, everything that is no build product."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    names = listed.stdout.splitlines() if listed.returncode == 0 else _found()
    return [name for name in names if Path(name).suffix not in BINARY and (ROOT / name).is_file()]


def _found() -> list[str]:
    hidden = re.compile(r"(^|/)(\.(?!ci/)[^/]*|node_modules|__pycache__)(/|$)")
    paths = (str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file())
    return [path for path in paths if not hidden.search(path)]


OURS = _ours()
PYTHON = [name for name in OURS if name.endswith(".py")]


def source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_files_are_found() -> None:
    assert {"manage.py", "Makefile", "recovery/errors.py", "templates/base.html"} <= set(OURS)


@pytest.mark.parametrize("suffix", LINES)
def test_a_file_can_be_read_in_one_sitting(suffix: str) -> None:
    lengths = {name: len(source(name).splitlines()) for name in OURS if Path(name).suffix == suffix}
    assert {name: length for name, length in lengths.items() if length > LINES[suffix]} == {}


def test_nothing_is_left_for_later() -> None:
    assert [name for name in OURS if UNFINISHED.search(source(name))] == []


def test_no_file_names_a_registry() -> None:
    allowed = {"tests/house/test_deploy.py"}  # it looks for them
    assert [name for name in OURS if name not in allowed and REGISTRIES.search(source(name))] == []


def test_a_module_opens_with_a_sentence() -> None:
    engine = [name for name in PYTHON if name.startswith(("recovery/", "dashboard/")) and "/migrations/" not in name]
    silent = [name for name in engine if source(name).strip() and not source(name).startswith(('"""', "#!"))]
    assert silent == []


@pytest.mark.parametrize("word", ["manager", "helper", "service", "util", "utils", "handler"])
def test_no_module_has_a_name_that_says_nothing(word: str) -> None:
    assert [name for name in PYTHON if word in Path(name).stem.split("_")] == []
