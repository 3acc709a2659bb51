"""Writes queries in LogQL. Whatever a person wrote stands in them as plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from recovery.domain.logs.types import LogLevel, LogQuery
from recovery.domain.redaction.redact import MARK

# What Loki calls a line's level, by itself or by a label; what it does not know is looked for in the line.
LEVELS: Mapping[str, LogLevel] = {
    "trace": LogLevel.TRACE,
    "trc": LogLevel.TRACE,
    "debug": LogLevel.DEBUG,
    "dbg": LogLevel.DEBUG,
    "info": LogLevel.INFO,
    "inf": LogLevel.INFO,
    "information": LogLevel.INFO,
    "warn": LogLevel.WARN,
    "wrn": LogLevel.WARN,
    "warning": LogLevel.WARN,
    "error": LogLevel.ERROR,
    "err": LogLevel.ERROR,
    "critical": LogLevel.FATAL,
    "fatal": LogLevel.FATAL,
}
LEVEL = "detected_level"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MATCHER = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"')
_SPECIAL = re.compile(r"[\\.+*?()|\[\]{}^$]")
# Codes may stand in the midst of a word that is shown without them (ansi.py).
_CODES = (r"\x1b", r"1b\[", r"1B\[", r"033\[")
_STAND_INS = re.compile("([\u2400-\u2421\ufffd]+)")  # what is shown for characters that cannot be seen (written.py)


def is_name(label: str) -> bool:
    return _NAME.fullmatch(label) is not None


def matchers(match: str, query: LogQuery) -> list[str]:
    """Returns the matchers of a query. No stream has a label whose name is none, and such a name would stand in the
    query as it was written: a query for lines without it means all, and one for lines with it none (`Scope.of`).
    """
    chosen = [_one_of(name, values) for name, values in sorted(query.labels) if is_name(name)]
    return [*([match] if match.strip() else []), *chosen]


def narrows(match: str, query: LogQuery) -> bool:
    """Returns True if Loki takes these matchers alone: one of them must refuse a stream that has not its label."""
    if any("" not in values for _, values in query.labels):
        return True
    return any(not _is_empty_fine(*found) for found in _MATCHER.findall(match))


def filters(query: LogQuery) -> str:
    """Returns filters that Loki can apply, and that never refuse a line that may match once it is made safe to show.
    But for characters that are several without their case: over there no "ss" is found in a "ß".

    What is excluded is judged here alone: over there it would also tell what stands in something hidden.
    """
    texts = (_include(term) for term in sorted(set(query.include)) if can_stand(term))
    return "".join([*texts, _levels(query)])


def selector(parts: Iterable[str]) -> str:
    return "{" + ", ".join(parts) + "}"


def present(label: str) -> str:
    return f'{label}=~".+"'


def absent(label: str) -> str:
    return f'{label}=""'


def quoted(text: str) -> str:
    """Returns a text as a string of the language, whose escapes are among those of JSON."""
    return json.dumps(sound(text), ensure_ascii=False)


def can_stand(term: str) -> bool:
    """Returns True if this text, found in a line as it is shown, must stand in the line as it is kept.

    Not so when it reaches into the mark that stands in place of a secret.
    """
    term = term.casefold()
    overlaps = (MARK.endswith(term[:size]) or MARK.startswith(term[-size:]) for size in range(1, len(MARK) + 1))
    return bool(term) and term not in MARK and MARK not in term and not any(overlaps)


def _one_of(name: str, values: frozenset[str]) -> str:
    ordered = sorted(values)
    if len(ordered) == 1:
        return f"{name}={quoted(ordered[0])}"
    return f"{name}=~{quoted('|'.join(_literal(value) for value in ordered))}"


def _include(term: str) -> str:
    """Returns the filter of a term, without regard to case. Loki looks for plain texts side by side without its engine
    for patterns, which is slow; but not when they have flags in common, or begin alike beyond ASCII.
    """
    parts = _STAND_INS.split(term)
    written = "".join(f"(?s:.{{{len(part)}}})" if number % 2 else _literal(part) for number, part in enumerate(parts))
    return f" |~ {quoted('|'.join((f'(?i:{written})', *_CODES)))}"


def _levels(query: LogQuery) -> str:
    """Returns the filter that drops what is surely another level. What Loki knows nothing of is judged here."""
    if not query.levels:
        return ""
    others = sorted(name for name, level in LEVELS.items() if level not in query.levels)
    return f" | {LEVEL}!~{quoted('(?i:' + '|'.join(others) + ')')}" if others else ""


def _literal(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", sound(text))


def sound(text: object) -> str:
    """Replaces halves of characters, which JSON may hold and nothing can write down, by question marks."""
    return str(text).encode("utf-8", "replace").decode()


def _is_empty_fine(name: str, operator: str, value: str) -> bool:
    """Returns True if a configured matcher accepts an empty value; False for a pattern that only Loki understands."""
    if operator in ("=", "!="):
        return (value == "") is (operator == "=")
    try:
        is_match = re.fullmatch(_unquoted(value), "") is not None
    except re.error:
        return False
    return is_match is (operator == "=~")


def _unquoted(value: str) -> str:
    try:
        return str(json.loads(f'"{value}"'))
    except ValueError:
        return value


def cover(sets: Sequence[frozenset[str]], most: int) -> list[str]:
    """Returns names of labels of which each set has at least one, the most frequent first; at most so many."""
    found: list[str] = []
    left = list(sets)
    while left and len(found) < most:
        counts: dict[str, int] = {}
        for names in left:
            for name in names:
                counts[name] = counts.get(name, 0) + 1
        if not counts:
            break
        best = min(counts, key=lambda name: (-counts[name], name))
        found.append(best)
        left = [names for names in left if best not in names]
    return found
