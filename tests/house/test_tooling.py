"""What runs before a commit is what the gate runs, and what editors do fits the files that are there."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
FOLDERS = ("recovery", "dashboard", "templates", "static", "tests", "bench", "deploy", "docs")
TEXTS = (".py", ".lua", ".js", ".css", ".html", ".md", ".toml", ".yaml", ".yml", ".sh", ".service")


def linted() -> set[str]:
    """The commands of `make lint`, as they are typed."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    recipe = makefile.split("\nlint:")[1].split("\n\n")[0]
    return {found.strip().removesuffix(" 2>") for found in re.findall(r"\$\(BIN\)/([^;\n|&)]*)", recipe)}


def hooked() -> dict[str, str]:
    written = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    return {hook["id"]: hook["entry"] for repo in written["repos"] for hook in repo["hooks"]}


def test_a_commit_is_checked_by_what_the_gate_checks() -> None:
    commands = {entry.removeprefix(".venv/bin/") for entry in hooked().values() if entry.startswith(".venv/bin/")}
    assert len(commands) == 5
    assert commands == linted()


def test_a_push_is_checked_by_the_fast_tests() -> None:
    assert "make test-fast" in hooked().values()


def test_files_are_as_the_editor_configuration_says() -> None:
    """UTF-8, \\n, no blanks at the end of a line, a newline at the end of the file."""
    paths = [
        path
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.suffix in TEXTS and "node_modules" not in path.parts and path.is_file()
    ]
    assert len(paths) > 1000
    violations = []
    for path in paths:
        text = path.read_bytes().decode("utf-8")
        ends = (
            text.endswith("\n") or not text or path.suffix == ".html"
        )  # an include inside of a tag has no end of line
        if "\r" in text or re.search(r"[ \t]\n", text) or not ends:
            violations.append(str(path.relative_to(ROOT)))
    assert violations == []
