"""Renders the documents in docs/ as pages, and mentions of them in other pages as links.

It reads as much Markdown as these documents use: headings, code, tables, and links between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.conf import settings
from django.urls import reverse
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString

LIMIT = 256 * 1024  # bytes of one document; the longest has 31 KB
_MENTION = re.compile(r"docs/([a-z0-9-]{1,40})\.md")
# A tag, or an element whose text is no place for a link; between two of these stands text.
_TAG = re.compile(r"<(a|script|style|textarea|title|option|button|summary)\b.*?</\1>|<[^>]*>|<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"(#{1,4}) (.+)")
_INLINE = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\*(?P<leant>[^*\s][^*]*)\*|\[(?P<text>[^\]]+)\]\((?P<to>[^)\s]+)\)"
)
_WRAP = re.compile(r"\n(?!- |\d+\. )\s*")  # the end of a line that is not the end of a point
_CELL = re.compile(r"(?<!\\)\|")
_TO = re.compile(r"(?:([a-z0-9-]{1,40})\.md)?(?:#([\w-]{1,100}))?")


@dataclass(frozen=True, slots=True)
class DocumentBlock:
    """A part of a document: `kind` is h1 … h4, p, code or table. `text` is safe to show; `id`: of a heading."""

    kind: str
    text: SafeString
    id: str = ""


@cache
def names() -> frozenset[str]:
    """Returns the names of the documents installed with this program; none where its docs/ was left out."""
    folder = _folder()
    return frozenset(path.stem for path in folder.glob("*.md")) if folder.is_dir() else frozenset()


@cache
def document(name: str) -> tuple[DocumentBlock, ...]:
    """Returns the blocks of a document. Raises KeyError for an unknown name."""
    if name not in names():
        raise KeyError(name)
    with (_folder() / f"{name}.md").open("rb") as file:
        return tuple(_blocks(file.read(LIMIT).decode("utf-8", "replace")))


def link_documents(page: str) -> str:
    """Turns each mention of a document in a page into a link; tags and existing links stay as they are."""
    parts, end = [], 0
    for tag in _TAG.finditer(page):
        parts += [_MENTION.sub(_link, page[end : tag.start()]), tag[0]]
        end = tag.end()
    return "".join([*parts, _MENTION.sub(_link, page[end:])])


def _link(mention: re.Match[str]) -> str:
    if mention[1] not in names():
        return mention[0]
    return format_html('<a class="link" href="{}">{}</a>', reverse("document", args=[mention[1]]), mention[0])


def _folder() -> Path:
    return Path(settings.BASE_DIR) / "docs"


def _blocks(text: str) -> Iterator[DocumentBlock]:
    lines: list[str] = []
    kind = "p"
    for line in [*text.splitlines(), ""]:
        if kind == "code":
            if line.startswith("```"):
                yield DocumentBlock("code", conditional_escape("\n".join(lines)))
                lines, kind = [], "p"
            else:
                lines.append(line)
            continue
        heading = _HEADING.fullmatch(line)
        now = _kind(line)
        if lines and (heading or not line.strip() or now != kind):
            yield _block(kind, lines)
            lines = []
        kind = now
        if heading:
            yield DocumentBlock(f"h{len(heading[1])}", _inline(heading[2]), _anchor(heading[2]))
        elif now != "code" and line.strip():
            lines.append(line)


def _kind(line: str) -> str:
    if line.startswith("```"):
        return "code"
    if line.startswith("|"):
        return "table"
    return "plain" if line.startswith("    ") else "p"


def _block(kind: str, lines: list[str]) -> DocumentBlock:
    if kind == "plain":
        return DocumentBlock("code", conditional_escape("\n".join(line[4:] for line in lines)))
    return DocumentBlock(kind, _table(lines) if kind == "table" else _inline(_WRAP.sub(" ", "\n".join(lines))))


def _table(lines: list[str]) -> SafeString:
    """Renders a table; the row below the first one is only a rule."""
    head, *rows = [[_inline(cell.strip()) for cell in _CELL.split(line.strip().strip("|"))] for line in lines]
    tops = format_html_join("", "<th scope='col'>{}</th>", ((cell,) for cell in head))
    body = ((format_html_join("", "<td>{}</td>", ((cell,) for cell in row)),) for row in rows[1:])
    return format_html("<thead><tr>{}</tr></thead><tbody>{}</tbody>", tops, format_html_join("", "<tr>{}</tr>", body))


def _inline(text: str) -> SafeString:
    parts, end = [], 0
    for found in _INLINE.finditer(text):
        parts += [conditional_escape(text[end : found.start()]), _marked(found)]
        end = found.end()
    return format_html_join("", "{}", ((part,) for part in (*parts, text[end:])))


def _marked(found: re.Match[str]) -> str:
    if found["code"]:
        return format_html("<code>{}</code>", found["code"])
    if found["bold"]:
        return format_html("<b>{}</b>", found["bold"])
    if found["leant"]:
        return format_html("<i>{}</i>", found["leant"])
    to = _TO.fullmatch(found["to"])
    if to is None or not (to[1] is None or to[1] in names()):
        return conditional_escape(found["text"])  # pictures and folders of the source are no pages here
    address = reverse("document", args=[to[1]]) if to[1] else ""
    return format_html('<a class="link" href="{}">{}</a>', address + (f"#{to[2]}" if to[2] else ""), found["text"])


def _anchor(heading: str) -> str:
    """Returns the anchor of a heading, as the sites that host repositories make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
