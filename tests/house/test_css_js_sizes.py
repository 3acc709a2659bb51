"""Style and behaviour: small files, one layer order, nothing from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "static"
SHEETS = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.css"))
SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.js"))
TEMPLATES = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT.parent / "templates").rglob("*.html"))
LINES = 150


def source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SHEETS + SCRIPTS)
def test_it_can_be_read_in_one_sitting_and_says_what_it_is_for(name: str) -> None:
    text = source(name)
    assert len(text.splitlines()) <= LINES
    assert text.startswith(("/*", "//")), "it opens with a sentence"


@pytest.mark.parametrize("name", SHEETS + SCRIPTS)
def test_a_page_uses_it(name: str) -> None:
    assert f"'{name}'" in TEMPLATES or f'"{name}"' in TEMPLATES


@pytest.mark.parametrize("name", SHEETS)
def test_every_rule_is_in_a_layer(name: str) -> None:
    text = re.sub(r"/\*.*?\*/", "", source(name), flags=re.DOTALL)
    depth = 0
    for line in text.splitlines():
        if depth == 0 and line.strip():
            assert line.startswith("@layer "), line
        depth += line.count("{") - line.count("}")
    assert depth == 0


@pytest.mark.parametrize("name", SHEETS)
def test_colours_come_from_the_tokens(name: str) -> None:
    text = re.sub(r"/\*.*?\*/", "", source(name), flags=re.DOTALL)
    if name != "css/tokens.css":
        assert not re.search(r":\s*[^;]*#[0-9a-f]{3,8}\b", text)
        assert not re.search(r"\b(rgb|hsl)\(", text)


@pytest.mark.parametrize("name", SHEETS)
def test_a_token_that_is_used_exists(name: str) -> None:
    local = set(re.findall(r"(--[\w-]+)\s*:", source(name)))
    known = set(re.findall(r"(--[\w-]+)\s*:", source("css/tokens.css") + source("css/parts/states.css"))) | local
    assert set(re.findall(r"var\((--[\w-]+)\)", source(name))) <= known


@pytest.mark.parametrize("name", SHEETS + SCRIPTS)
def test_nothing_is_loaded_from_another_host(name: str) -> None:
    assert not re.search(r"(https?:)?//[\w-]+\.\w", re.sub(r"//\s.*", "", source(name)))
    assert "@import" not in source(name)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_keeps_to_itself_and_needs_no_eval(name: str) -> None:
    text = source(name)
    assert '"use strict"' in text or re.search(rf'<script[^>]*type="module"[^>]*{re.escape(name)}', TEMPLATES)
    assert not re.search(r"\beval\(|new Function\(|\.innerHTML\s*=|insertAdjacentHTML|document\.write", text)
