"""Templates compile, and hold nothing that the content policy would refuse."""

from __future__ import annotations

import re
from pathlib import Path

from django.template import TemplateDoesNotExist, TemplateSyntaxError
from django.template.loader import get_template

ROOT = Path(__file__).parents[2] / "templates"
TEMPLATES = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.html"))
FRAMES = {"base.html", "bare.html"}
TOKEN = "{% csrf_token %}"


def source(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


# What the content policy would refuse, or htmx would have to evaluate.
REFUSED = {
    "a script without src": r"<script(?![^>]*\bsrc=)",
    "a style element": r"<style",
    "a style attribute": r"<[^>]*\sstyle=",
    "an event attribute": r"<[^>]*\son[a-z]+=",
    "a script as an address": r"javascript:",
    "hx-on": r"hx-on",
    "values by script": r"hx-(vals|headers)=.js:",
    "a trigger's filter": r"hx-trigger=\"[^\"]*\w\[",
    "another host": r"(src|href|action|hx-get|hx-post)=[\"']?(https?:)?//",
    "text that is not escaped": r"\|safe|autoescape off",
}


def test_there_are_templates() -> None:
    assert len(TEMPLATES) > 100


def test_each_compiles() -> None:
    violations = [f"{name}: {error}" for name in TEMPLATES if (error := _error_of(name))]
    assert violations == []


def _error_of(name: str) -> Exception | None:
    try:
        get_template(name)
    except (TemplateSyntaxError, TemplateDoesNotExist) as error:
        return error
    return None


def test_none_holds_what_would_be_refused() -> None:
    signs = REFUSED.items()
    violations = [f"{name}: {what}" for name in TEMPLATES for what, sign in signs if re.search(sign, source(name))]
    assert violations == []


def test_the_signs_of_what_is_refused_are_found() -> None:
    bad = """<script>x</script><style></style><p style="x"><a onclick="x" href="javascript:x"><i hx-on:click="x">
    <b hx-vals='js:{}'><u hx-trigger="click[x]"><img src="https://cdn.example.org/x.png">{{ x|safe }}"""
    assert [what for what, sign in REFUSED.items() if not re.search(sign, bad)] == []


def test_a_form_that_changes_something_has_its_token() -> None:
    posts = re.compile(r"<form[^>]*method=\"post\".*?</form>", re.DOTALL)
    forms = [(name, form) for name in TEMPLATES for form in posts.findall(source(name))]
    violations = [f"{name}: {form.partition('>')[0]}>" for name, form in forms if TOKEN not in form]
    assert violations == []


def test_a_page_extends_a_frame_and_a_fragment_does_not() -> None:
    extends = {name: source(name).lstrip().startswith("{% extends ") for name in set(TEMPLATES) - FRAMES}
    violations = sorted(name for name, whole in extends.items() if whole is Path(name).name.startswith("_"))
    assert violations == []
