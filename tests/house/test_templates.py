"""Templates compile, stay small, and hold nothing that the content policy would refuse."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.template.loader import get_template

ROOT = Path(__file__).parents[2] / "templates"
TEMPLATES = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.html"))
LINES = 80


def source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", TEMPLATES)
def test_it_compiles(name: str) -> None:
    get_template(name)


@pytest.mark.parametrize("name", TEMPLATES)
def test_it_can_be_read_in_one_sitting(name: str) -> None:
    assert len(source(name).splitlines()) <= LINES


@pytest.mark.parametrize("name", TEMPLATES)
def test_it_holds_no_inline_script_or_style(name: str) -> None:
    text = source(name)
    assert not re.search(r"<script(?![^>]*\bsrc=)", text), "a script without src"
    assert "<style" not in text
    assert not re.search(r"<[^>]*\sstyle=", text), "a style attribute"
    assert not re.search(r"<[^>]*\son[a-z]+=", text), "an event attribute"
    assert "javascript:" not in text
    assert "hx-on" not in text, "htmx would have to eval it"
    assert not re.search(r"hx-(vals|headers)=.js:", text), "htmx would have to eval it"
    assert not re.search(r"hx-trigger=\"[^\"]*\w\[", text), "a trigger's filter is evaluated"


@pytest.mark.parametrize("name", TEMPLATES)
def test_it_loads_nothing_from_another_host(name: str) -> None:
    assert not re.search(r"(src|href|action|hx-get|hx-post)=[\"']?(https?:)?//", source(name))


@pytest.mark.parametrize("name", TEMPLATES)
def test_nothing_is_marked_safe(name: str) -> None:
    text = source(name)
    assert "|safe" not in text
    assert "autoescape off" not in text


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_form_that_changes_something_has_its_token(name: str) -> None:
    for form in re.findall(r"<form[^>]*method=\"post\".*?</form>", source(name), re.DOTALL):
        assert "{% csrf_token %}" in form


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_page_extends_a_frame_and_a_fragment_does_not(name: str) -> None:
    is_fragment = Path(name).name.startswith("_")
    is_frame = name in ("base.html", "bare.html")
    extends = source(name).lstrip().startswith("{% extends ")
    assert extends is not is_fragment or is_frame
