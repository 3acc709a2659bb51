"""Style and behaviour: files that say what they are for and are used, one layer order, nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2] / "static"
SHEETS = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.css"))
SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.js"))
TEMPLATES = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT.parent / "templates").rglob("*.html"))
TOKENS = "css/tokens.css"
_DEFINED = re.compile(r"(--[\w-]+)\s*:")
_USED = re.compile(r"var\((--[\w-]+)\)")
_COLOUR = re.compile(r":\s*[^;]*#[0-9a-f]{3,8}\b|\b(?:rgb|hsl)a?\(", re.IGNORECASE)
_ELSEWHERE = re.compile(r"(?:https?:)?//[\w-]+\.\w[\w.-]*|@import")
_EVALUATED = re.compile(r"\beval\(|new Function\(|\.innerHTML\s*=|insertAdjacentHTML|document\.write")


def source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def without_comments(sheet: str) -> str:
    return re.sub(r"/\*.*?\*/", "", source(sheet), flags=re.DOTALL)


def test_sheets_and_scripts_are_found() -> None:
    assert {TOKENS, "css/parts/states.css"} <= set(SHEETS)
    assert "js/live.js" in SCRIPTS


def test_each_says_what_it_is_for() -> None:
    violations = [name for name in SHEETS + SCRIPTS if not source(name).startswith(("/*", "//"))]
    assert violations == []


def test_a_page_uses_each() -> None:
    violations = [name for name in SHEETS + SCRIPTS if f"'{name}'" not in TEMPLATES and f'"{name}"' not in TEMPLATES]
    assert violations == []


def test_every_rule_is_in_a_layer() -> None:
    violations = [f"{name}: {line}" for name in SHEETS for line in _outside_layers(without_comments(name))]
    assert violations == []


def _outside_layers(css: str) -> list[str]:
    """The lines at the top that open or name no layer."""
    outside, depth = [], 0
    for line in css.splitlines():
        if depth == 0 and line.strip() and not line.startswith("@layer "):
            outside.append(line)
        depth += line.count("{") - line.count("}")
    return outside + ["its braces do not match"] * (depth != 0)


def test_colours_come_from_the_tokens() -> None:
    sheets = [name for name in SHEETS if name != TOKENS]
    violations = [f"{name}: {found[0]}" for name in sheets for found in _COLOUR.finditer(without_comments(name))]
    assert violations == []


def test_a_token_that_is_used_exists() -> None:
    shared = set(_DEFINED.findall(source(TOKENS) + source("css/parts/states.css")))
    unknown = {name: set(_USED.findall(source(name))) - set(_DEFINED.findall(source(name))) - shared for name in SHEETS}
    violations = {name: sorted(tokens) for name, tokens in unknown.items() if tokens}
    assert violations == {}


def test_nothing_is_loaded_from_another_host() -> None:
    texts = {name: re.sub(r"//\s.*", "", source(name)) for name in SHEETS + SCRIPTS}
    violations = [f"{name}: {found[0]}" for name, text in texts.items() for found in _ELSEWHERE.finditer(text)]
    assert violations == []


def test_a_script_keeps_to_itself() -> None:
    """It is strict, by its own word or as a module, and leaves no names to others by mistake."""
    modules = {name for name in SCRIPTS if re.search(rf'<script[^>]*type="module"[^>]*{re.escape(name)}', TEMPLATES)}
    violations = [name for name in SCRIPTS if name not in modules and '"use strict"' not in source(name)]
    assert violations == []


def test_no_script_evaluates_text() -> None:
    violations = [f"{name}: {found[0]}" for name in SCRIPTS for found in _EVALUATED.finditer(source(name))]
    assert violations == []
