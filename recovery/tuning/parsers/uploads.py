"""Decodes what was pasted or uploaded into text, within limits, and refuses characters that no such file has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from recovery.errors import Illegible

FILE_LIMIT = 1024 * 1024  # bytes; the manifests of a large cluster's one namespace are a tenth of it
ALL_LIMIT = 1536 * 1024  # bytes of one request; a web process takes no larger one than 2 MB
FILES_LIMIT = 20
NAME_LIMIT = 120  # characters of a name shown
_BOM = "\ufeff"
# Characters that YAML allows nowhere. A byte order mark in the middle is allowed: another file was appended there.
_FOREIGN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_UNSEEN = re.compile(r"[^\w .,()+@/-]")


def decode_files(files: Iterable[tuple[str, bytes]]) -> Mapping[str, str]:
    """Returns the texts by unique names. Raises Illegible, which names the line."""
    found: dict[str, str] = {}
    left = ALL_LIMIT
    for written, content in files:
        name = _name(written, found)
        if len(found) == FILES_LIMIT:
            raise Illegible(name, f"more than {FILES_LIMIT} files at once.")
        left -= len(content)
        if len(content) > FILE_LIMIT or left < 0:
            raise Illegible(name, too_large())
        found[name] = _decoded(name, content)
    return found


def too_large() -> str:
    return f"too large: a file may have {FILE_LIMIT // 1024:,} KB, all of them together {ALL_LIMIT // 1024:,} KB."


def _name(written: str, taken: Mapping[str, str]) -> str:
    plain = _UNSEEN.sub("_", written.strip().replace("\\", "/").rpartition("/")[2])[:NAME_LIMIT] or "text"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain} ({number})", number + 1
    return name


def _decoded(name: str, content: bytes) -> str:
    try:
        text = content.decode("utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Illegible(name, "this is not UTF-8 text.", line=line) from None
    text = text.removeprefix(_BOM)
    foreign = _FOREIGN.search(text)
    if foreign:
        line = text.count("\n", 0, foreign.start()) + 1
        raise Illegible(name, f"a character that is not allowed, U+{ord(foreign[0]):04X}.", line=line)
    return text
