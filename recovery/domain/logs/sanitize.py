"""Makes a log line safe to show: any bytes in, plain text without secrets out.

A secret may be cut in two by terminal codes, by other invisible characters, or by the end of what is shown. So codes
are removed first, more is judged than is shown, and a secret that shows only without the invisible characters hides the
whole line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from recovery.domain.logs import ansi, levels
from recovery.domain.logs.types import LogLevel, LogLine, LogQuery, StyledSpan
from recovery.domain.redaction import redact
from recovery.domain.redaction.redact import MARK

LIMIT = 16 * 1024  # bytes of a line that are shown: more than a person reads, and 500 of them still fit a page
_BEYOND = 1024  # bytes judged behind those: longer than any secret that is known by its end alone
JUDGED = LIMIT + _BEYOND  # what a source hands over of a longer line

_UNSEEN = "\u200b\u2028\u2029\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_CONTROLS = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_UNSEEN}]")  # but for tabs and line ends
_STAND_INS = "\u2400-\u2421\ufffd"  # what is shown for those
# What may stand within a word and is not seen. Some languages need some of these, so that they stay in the text.
_SEAMS = re.compile(f"[{_STAND_INS}\xad\u034f\u061c\u180e\u200c-\u200f\ufe00-\ufe0f]")
_OF_STAND_INS = re.compile(f"[{_STAND_INS}]")
_BREAKS = str.maketrans("\n\r", "\u240a\u240d")
# A private key in many lines: base64 alone, in the lengths that such files have, and a shorter last one.
_KEY_LINE = re.compile(
    r"(?=\S*[a-z])(?=\S*[A-Z])(?=\S*[0-9])"
    r"(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70}|[A-Za-z0-9+/]{76}|[A-Za-z0-9+/]{16,76}={1,2})"
)
_KEY_LINE_LIMIT = 120


def sanitize_line(
    id: str,
    at: int,
    raw: bytes,
    labels: Mapping[str, str],
    level: LogLevel | None = None,
    *,
    more: int = 0,
    is_revealed: bool = False,
) -> LogLine:
    """Builds the line that is shown. `id` and `at` are its source's; without a level it is looked for in the text.
    `more`: bytes that the source did not even hand over. `is_revealed`: its secrets are left in it.
    """
    raw = raw.rstrip(b"\r\n")
    text = raw[:JUDGED].decode("utf-8", "replace")
    left_out = more + max(0, len(raw) - LIMIT)
    if is_revealed:
        shown = _CONTROLS.sub(_stand_in, ansi.strip_codes(raw[:LIMIT].decode("utf-8", "replace"))).translate(_BREAKS)
        return LogLine(id, at, shown, labels, level or levels.find_level(shown), (), left_out)
    if left_out or not text.isprintable() or ansi.may_have(text):
        text, spans = _dressed(text, raw[LIMIT:JUDGED])
    else:
        text, spans = _hidden(text), ()
    return LogLine(id, at, text, labels, level or levels.find_level(text), spans, left_out)


def line_prefilter(query: LogQuery) -> Callable[[bytes], bool]:
    """Returns a quick test on bytes, of one line or of many, that is never False for a match by text and level.

    For lines whose labels hold a searched text, pass the rest of the query (`LogQuery.beside`).
    """
    terms = [term for term in map(str.casefold, query.include) if not _may_be_ours(term)]
    in_bytes = [term.encode("utf-8", "replace") for term in terms]
    may_be = levels.level_prefilter(query.levels) if query.levels else None

    def may_match(raw: bytes) -> bool:
        if ansi.bytes_may_have(raw):
            return True
        if not raw.isascii():
            text = raw.decode("utf-8", "replace").casefold() if terms else ""
            return all(term in text for term in terms)
        if in_bytes:
            lowered = raw.lower()
            for term in in_bytes:
                if term not in lowered:
                    return False
        return may_be is None or may_be(raw)

    return may_match if terms or may_be else lambda raw: True


def _may_be_ours(term: str) -> bool:
    """Returns True if a text may match a stand-in of ours in the line."""
    size = len(MARK)
    return (
        term in MARK
        or MARK in term
        or any(term.startswith(MARK[-part:]) or term.endswith(MARK[:part]) for part in range(1, size))
        or _OF_STAND_INS.search(term) is not None
    )


def _dressed(text: str, tail: bytes) -> tuple[str, tuple[StyledSpan, ...]]:
    """Redacts a line with more than plain letters; returns text and looks. `tail`: its end, judged and not shown."""
    runs = [
        (_CONTROLS.sub(_stand_in, part), look)
        for part, look in (ansi.parse_runs(text) if ansi.may_have(text) else ((text, ""),))
    ]
    whole = "".join(part for part, _ in runs).removeprefix("\ufffd" if text.startswith("\ufeff") else "")
    shown = _sewn(whole)
    if tail:
        shown = _without(len(ansi.strip_codes(tail.decode("utf-8", "replace"))), whole, shown)
    spans = tuple(_aligned(runs, shown)) if any(look for _, look in runs) else ()
    return shown.translate(_BREAKS), spans


def _stand_in(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def _hidden(text: str) -> str:
    if len(text) <= _KEY_LINE_LIMIT and " " not in (body := text.strip()) and _KEY_LINE.fullmatch(body):
        return MARK
    return redact.text(text)


def _sewn(text: str) -> str:
    """Redacts the text as it is, and as it would be read without invisible characters."""
    shown = _hidden(text)
    closed = _SEAMS.sub("", text)
    if closed != text:
        judged = _hidden(closed)
        if judged != closed and _SEAMS.sub("", shown) != judged:
            return MARK
    return shown


def _without(size: int, whole: str, shown: str) -> str:
    """Cuts the text before the tail; where something in the tail was hidden, behind that: it may have begun before."""
    same = 0
    while same < min(size, len(shown)) and shown[-1 - same] == whole[-1 - same]:
        same += 1
    return shown[: len(shown) - same]


def _aligned(runs: list[ansi.Run], shown: str) -> Iterator[StyledSpan]:
    """Yields the looks of what was not hidden. Parts between two marks are looked for in their order."""
    whole = "".join(part for part, _ in runs)
    looks = _Looks(runs)
    position, found = 0, []
    for number, part in enumerate(shown.split(MARK)):
        if number:
            found.append((MARK, ""))
        start = max(position, whole.find(part, position))
        position = start + len(part)
        found += looks.between(start, part)
    for text, look in ansi.merge_runs(found):
        yield StyledSpan(text.translate(_BREAKS), look)


class _Looks:
    """Looks of parts of a text, found in one walk while parts come in order."""

    def __init__(self, runs: list[ansi.Run]) -> None:
        self._runs = iter(runs)
        self._end, self._look = 0, ""

    def between(self, start: int, part: str) -> Iterator[ansi.Run]:
        done = 0
        while done < len(part):
            while self._end <= start + done:
                text, self._look = next(self._runs, (part, ""))
                self._end += len(text)
            size = min(self._end - start, len(part))
            yield part[done:size], self._look
            done = size
