"""Whatever names a document names one that is there, and a page makes a link of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.base import documents
from tests.support.people import browser, person, text

ROOT = Path(__file__).parents[2]
_MENTION = re.compile(r"docs/[\w./-]*\w")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def sources() -> Iterator[Path]:
    for folder, ending in (("templates", "html"), ("dashboard", "py"), ("recovery", "py"), ("static/js", "js")):
        yield from (ROOT / folder).rglob(f"*.{ending}")


def test_every_mention_is_of_a_document_that_is_there() -> None:
    violations = [
        f"{path.relative_to(ROOT)}: {mention}"
        for path in sources()
        for mention in _MENTION.findall(path.read_text("utf-8"))
        if not (mention.endswith(".md") and mention[5:-3] in documents.names()) and mention != "docs/NAME"
    ]
    assert violations == []


def test_no_mention_stands_where_it_can_be_no_link() -> None:
    violations = []
    for path in (ROOT / "templates").rglob("*.html"):
        page = path.read_text("utf-8")
        links = documents.link_documents(page).count('href="/docs/')
        if links != len(re.findall(r"docs/[a-z0-9-]+\.md", page)):
            violations.append(str(path.relative_to(ROOT)))
    assert violations == []


def test_every_link_between_documents_leads_somewhere() -> None:
    violations = []
    for name in documents.names():
        for to in _LINK.findall((ROOT / "docs" / f"{name}.md").read_text("utf-8")):
            other, _, anchor = to.partition("#")
            if other.startswith(("http:", "https:")) or "/" in other or not (other == "" or other.endswith(".md")):
                continue
            blocks = documents.document(other.removesuffix(".md") or name)
            if anchor and anchor not in {block.id for block in blocks}:
                violations.append(f"{name}.md: {to}")
    assert violations == []


def test_the_list_of_scopes_in_the_document_of_the_api_is_whole() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    table = page.partition("| scope | may |\n|---|---|\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `([\w:]+)` \|", table, re.MULTILINE) == [scope.value for scope in TokenScope]


def test_every_test_that_a_document_names_is_there() -> None:
    """docs/security.md names the test of each promise."""
    violations = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in (*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"))
        for name in re.findall(r"\btests/[\w/]+\.py\b", path.read_text("utf-8"))
        if not (ROOT / name).exists()
    ]
    assert violations == []


def test_the_image_has_the_documents() -> None:
    assert "\nCOPY docs docs\n" in (ROOT / "deploy" / "Containerfile").read_text("utf-8")


@pytest.mark.django_db
def test_every_document_is_a_page_for_whoever_is_logged_in() -> None:
    viewer = browser(person(UserRole.VIEWER))
    index = text(viewer, "/docs")
    for name in sorted(documents.names()):
        assert f'href="/docs/{name}"' in index
        assert '<article class="document">' in text(viewer, f"/docs/{name}")
    for odd in ("nothing", "0006-a-fence-in-each-queue"):
        text(viewer, f"/docs/{odd}", 404)
    assert Client().get("/docs/logs").status_code == 302


@pytest.mark.parametrize(
    ("page", "links"),
    [
        ("<p>(docs/idempotency.md) and docs/logs.md.</p>", 2),
        ("<p>docs/nothing.md</p>", 0),
        ('<p title="docs/idempotency.md">x</p>', 0),
        ('<a href="/x">docs/idempotency.md</a>', 0),
        ("<script>'docs/idempotency.md'</script><textarea>docs/idempotency.md</textarea>", 0),
        ("<pre>a &lt;b&gt; docs/idempotency.md</pre>", 1),
    ],
)
def test_a_mention_becomes_a_link_where_text_stands(page: str, links: int) -> None:
    made = documents.link_documents(page)
    assert made.count('<a class="link" href="/docs/') == links
    assert re.sub(r'<a class="link" href="/docs/\w+">([^<]*)</a>', r"\1", made) == page


@pytest.mark.django_db
def test_every_page_has_its_mentions_as_links() -> None:
    page = text(browser(person(UserRole.VIEWER)), "/alerts")
    assert '<a class="link" href="/docs/alerts">docs/alerts.md</a>' in page


def test_a_document_is_only_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    nasty = "<img src=x onerror=alert(1)>"
    (folder / "odd.md").write_text(
        f"# A `b` {nasty}\n\n**{nasty}** *{nasty}*\n[{nasty}](javascript:alert(1)) [x](odd.md#y)\n\n"
        f"```sh\n{nasty}\n```\n"
        f"\n    {nasty}\n\n| a | {nasty} |\n|---|---|\n| `{nasty}` | 2 |\n"
    )
    monkeypatch.setattr(settings, "BASE_DIR", tmp_path)
    documents.names.cache_clear()
    documents.document.cache_clear()
    try:
        blocks = documents.document("odd")
    finally:
        monkeypatch.undo()
        documents.names.cache_clear()
        documents.document.cache_clear()
    assert [block.kind for block in blocks] == ["h1", "p", "code", "code", "table"]
    made = "".join(block.text for block in blocks)
    assert "<img" not in made
    assert "javascript:" not in made
    assert '<a class="link" href="/docs/odd#y">x</a>' in made
    assert "<i>&lt;img" in made
    assert "<th scope='col'>a</th>" in made


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = _LINK.findall((ROOT / "README.md").read_text("utf-8"))
    assert len(links) > 20
    violations = [link for link in links if not (ROOT / link.partition("#")[0]).exists()]
    for link in links:
        name, _, anchor = link.removeprefix("docs/").partition("#")
        if anchor and anchor not in {block.id for block in documents.document(name.removesuffix(".md"))}:
            violations.append(link)
    assert violations == []


def test_every_command_of_the_readme_is_there() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    commands = set(re.findall(r"manage\.py ([a-z][a-z-]*)", readme))
    targets = set(re.findall(r"\bmake ([a-z-]+)", readme))
    makefile = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert commands >= {"queues", "doctor", "web"}
    assert "run" in targets
    assert commands - set(get_commands()) == set()
    assert targets - set(makefile) == set()


GLOSSARY = ROOT / "docs" / "words.md"
_DEFINED = re.compile(r"^\| ([a-z][^|]*) \| ", re.MULTILINE)
ENTRIES = 40  # more than that is a language of our own, and nobody learns it


def glossary() -> list[str]:
    """The words of the glossary; an entry may define two that belong together."""
    return [entry for entry in _DEFINED.findall(GLOSSARY.read_text("utf-8")) if entry != "word"]


def test_the_glossary_is_short() -> None:
    assert 20 <= len(glossary()) <= ENTRIES


def test_every_word_of_the_glossary_is_used() -> None:
    others = [ROOT / "README.md", *(path for path in (ROOT / "docs").glob("*.md") if path != GLOSSARY)]
    prose = " ".join(" ".join(path.read_text("utf-8").lower().split()) for path in others)
    words = [word for entry in glossary() for word in entry.split(", ")]
    assert [word for word in words if not re.search(rf"\b{word}s?\b", prose)] == []


ARCHITECTURE = ROOT / "docs" / "architecture.md"
_FOLDER = re.compile(r"^\| `([\w/-]+)` \|", re.MULTILINE)
_FILE = re.compile(r"`((?:recovery|dashboard|static|templates)/[\w/.-]+\.\w+)`")
_INSIDE = {"recovery/drills/node", "recovery/stores/state/lua"}  # what belongs to the module beside it


def folders() -> set[str]:
    """Packages down to their second level, with the deeper ones that hold modules of a subject of their own."""
    found = {
        str(path.parent.relative_to(ROOT))
        for package in ("recovery", "dashboard")
        for path in (ROOT / package).rglob("*.py")
    }
    ends = ("/commands", "/lua")
    return {name for name in found if not name.endswith(ends)} - _INSIDE


def test_the_architecture_names_every_folder() -> None:
    named = _FOLDER.findall(ARCHITECTURE.read_text("utf-8"))
    assert len(named) == len(set(named))
    assert sorted(folders() - set(named)) == []
    assert [name for name in named if not (ROOT / name).is_dir()] == []


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = _FILE.findall(ARCHITECTURE.read_text("utf-8"))
    assert len(named) > 40
    assert [name for name in named if not (ROOT / name).exists()] == []
