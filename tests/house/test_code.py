"""Every file of ours is finished, every module says what it is for, and none names a registry."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
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


def test_nothing_is_left_for_later() -> None:
    violations = [f"{name}: {found[0]}" for name in OURS if (found := UNFINISHED.search(source(name)))]
    assert violations == []


def test_no_file_names_a_registry() -> None:
    allowed = {"tests/house/test_deploy.py"}  # it looks for them
    named = ((name, REGISTRIES.search(source(name))) for name in OURS if name not in allowed)
    violations = [f"{name}: {found[0]}" for name, found in named if found]
    assert violations == []


def test_a_module_opens_with_a_sentence() -> None:
    engine = [name for name in PYTHON if name.startswith(("recovery/", "dashboard/")) and "/migrations/" not in name]
    violations = [name for name in engine if source(name).strip() and not source(name).startswith(('"""', "#!"))]
    assert violations == []
