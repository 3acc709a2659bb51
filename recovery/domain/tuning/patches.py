"""Edits carried out on a person's own text, and shown as a unified diff that `patch` takes.

Comments and order stay as they are. A diff goes to a page or a terminal, and the text may hold secrets beside what is
changed; so a line is shown only when nothing stands on it but a key, or a setting with a harmless value. Where another
one would have to be shown, the change is not, and is counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recovery.domain import redact
from recovery.domain.secrets import is_secret_key
from recovery.domain.tuning.findings import Edit
from recovery.domain.tuning.variables import PHANTOMS, VARIABLES

CONTEXT = 2  # lines before and after a change, as far as they may be shown
_NAME = r"""["']?[A-Za-z0-9_.]{1,80}["']?"""
_POLICY = "[a-z]{5,8}-(?:lru|lfu|ttl|random)"
_WORTH = rf"[\d._]{{0,20}} ?[a-z]{{0,2}}|true|false|\$\{{\w{{1,80}}(?::?-[\d.]{{0,20}})?\}}|{_POLICY}"
_SETTING = re.compile(rf"""\s*(?:- )?["']?(?:export )?(?:name: )?{_NAME}(?:\s?[:=]\s?["']?(?:{_WORTH})["']?)?,?\s*""")
_OPTIONS = r"--(?:maxmemory|maxmemory-policy|save|appendonly|appendfsync)"
_SERVER = r"(?:redis|valkey)-server ?"
_OPTION = re.compile(
    rf"""\s*(?:- )?(?:command: )?["']?(?:{_SERVER})?(?:{_OPTIONS}[ =]?(?:[\w.-]{{1,14}} ?)?){{0,8}}["']?"""
)
_CHOICE = re.compile(rf"""\s*(?:- )?["']?(?:maxmemory-policy )?{_POLICY}["']?""")
_ITEM = rf"""\{{ ?["']?name["']?: ?{_NAME}, ?["']?value["']?: ?["']?(?:{_WORTH})["']? ?\}}"""
_ITEM_LINE = re.compile(rf"\s*- {_ITEM}")
_PAIR = rf"""{_NAME}: ?["']?(?:{_WORTH})["']?"""
_WORD = rf"""{_ITEM}|["']?[A-Z0-9_]{{1,80}}=(?:{_WORTH})["']?"""
_LIST, _MAP = rf"\[ ?(?:{_WORD})(?:, ?(?:{_WORD}))* ?\]", rf"\{{ ?{_PAIR}(?:, ?{_PAIR})* ?\}}"
_IN_BRACKETS = re.compile(rf"\s*(?:env|environment): (?:{_LIST}|{_MAP})")
_KEYS_IN_BRACKETS = frozenset({"env", "environment", "name", "value", "true", "false"})
_KEY = re.compile(rf"\s*(?:- )?(?:name: {_NAME}|{_NAME}:)\s*")  # its value, if it has one, is on other lines
_SAID = r"(?:[^\W\d_]+|\d+)"  # a word or a number, nothing made of both
_COMMENT = re.compile(rf"\s+#([^\w#]*(?:{_SAID}[^\w#]+)*{_SAID}?)$")
_ODD_BREAKS = re.compile("\r(?!\n)|[\x85\u2028\u2029]")  # lines to YAML, none to `patch`


@dataclass(frozen=True, slots=True)
class Patch:
    """`diff` "": nothing of it may be shown. `withheld`: changes on lines that hold more than the setting."""

    file: str
    diff: str
    withheld: int
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Lines `first` … `last` become `new`; first = last + 1 where lines are only added."""

    first: int
    last: int
    new: tuple[str, ...]


def patch(file: str, text: str, edits: Iterable[Edit]) -> Patch | None:
    """None: nothing is to be changed. Of edits that overlap the first one counts."""
    if _ODD_BREAKS.search(text):
        return None
    lines = text.split("\n")
    hunks = _hunks(lines, _apart(edits))
    shown = [hunk for hunk in hunks if _may_be_shown(lines, hunk)]
    if not hunks:
        return None
    head = f"--- {file}\n+++ {file}\n"
    body = _written(lines, shown)
    return Patch(file, head + body if body else "", len(hunks) - len(shown), text, _applied(lines, hunks))


def _apart(edits: Iterable[Edit]) -> list[Edit]:
    kept: list[Edit] = []
    for edit in _gathered(edits):
        start, end = (edit.line, edit.column), (edit.end_line, edit.end_column)
        if all(start >= _end(other) or end <= (other.line, other.column) for other in kept):
            kept.append(edit)
    # Of lines added at one point the deepest belong to what ends there, and come first; equal ones stay in their order.
    return sorted(kept, key=lambda edit: (edit.line, edit.column, _end(edit), -_depth(edit)))


def _gathered(edits: Iterable[Edit]) -> list[Edit]:
    """What opens the same block at the same point becomes one, with its head."""
    found: dict[tuple[int, str], Edit] = {}
    plain: list[Edit] = []
    for edit in dict.fromkeys(edits):
        if not edit.head:
            plain.append(edit)
        elif (one := found.get((edit.line, edit.head))) is None:
            found[edit.line, edit.head] = edit
        else:
            found[edit.line, edit.head] = replace(one, text=one.text + edit.text)
    return [*plain, *(replace(edit, text=edit.head + edit.text, head="") for edit in found.values())]


def _depth(edit: Edit) -> int:
    return len(edit.text) - len(edit.text.lstrip(" "))


def _end(edit: Edit) -> tuple[int, int]:
    return edit.end_line, edit.end_column


def _hunks(lines: Sequence[str], edits: list[Edit]) -> list[_Hunk]:
    """Edits that touch one line are one hunk."""
    groups: list[list[Edit]] = []
    for edit in edits:
        if groups and _reach(edit)[0] <= max(_reach(one)[1] for one in groups[-1]):
            groups[-1].append(edit)
        else:
            groups.append([edit])
    return [_hunk(lines, group) for group in groups]


def _reach(edit: Edit) -> tuple[int, int]:
    """The lines it touches, first and last. One of whole lines ends before the line that its end begins."""
    return edit.line, edit.end_line - (edit.column == 0 and edit.end_column == 0)


def _hunk(lines: Sequence[str], group: list[Edit]) -> _Hunk:
    first = min(_reach(edit)[0] for edit in group)
    last = max(_reach(edit)[1] for edit in group)
    part = "".join(f"{line}\n" for line in lines[first - 1 : last])
    starts = [0]
    for line in lines[first - 1 : last]:
        starts.append(starts[-1] + len(line) + 1)
    for edit in reversed(group):
        start, end = starts[edit.line - first] + edit.column, starts[edit.end_line - first] + edit.end_column
        part = part[:start] + edit.text + part[end:]
    ending = "\r" if lines and lines[0].endswith("\r") else ""
    new = [line if line.endswith("\r") else line + ending for line in part.split("\n")[:-1]]
    return _Hunk(first, last, tuple(new))


def _applied(lines: Sequence[str], hunks: list[_Hunk]) -> str:
    result = list(lines)
    for hunk in reversed(hunks):
        # Behind the last line nothing stands; with a line break at its end the text has an empty one there.
        at_end = hunk.first > len(result)
        result[hunk.first - 1 : hunk.last] = hunk.new
        if at_end:
            result.append("")
    return "\n".join(result)


def _may_be_shown(lines: Sequence[str], hunk: _Hunk) -> bool:
    return all(map(_is_harmless, lines[hunk.first - 1 : hunk.last]))


def _is_harmless(line: str) -> bool:
    plain = line.rstrip()
    comment = _COMMENT.search(plain)
    if comment:
        plain = plain[: comment.start()]
    said = comment[1].split() if comment else []
    if not any(form.fullmatch(plain) for form in (_SETTING, _OPTION, _CHOICE, _ITEM_LINE)) and not _is_known(plain):
        return False
    return redact.text(line) == line and not any(map(is_secret_key, said))


def _is_known(line: str) -> bool:
    """Whether it is a list of settings in brackets, all of them n8n's own: another's number may be a secret."""
    return _IN_BRACKETS.fullmatch(line) is not None and all(
        word in _KEYS_IN_BRACKETS or word in VARIABLES or word in PHANTOMS
        for word in re.findall(r"(?<![\w.])[A-Za-z_]\w*", line)
    )


def _written(lines: Sequence[str], hunks: list[_Hunk]) -> str:
    parts, shift, floor = [], 0, 0
    for index, hunk in enumerate(hunks):
        ceiling = hunks[index + 1].first - 1 if index + 1 < len(hunks) else _count(lines)
        before = _around(lines, range(hunk.first - 1, floor, -1))[::-1]
        after = _around(lines, range(hunk.last + 1, ceiling + 1))
        parts.append(_one(lines, hunk, before, after, shift))
        shift += len(hunk.new) - (hunk.last - hunk.first + 1)
        floor = hunk.last + len(after)
    return "".join(parts)


def _count(lines: Sequence[str]) -> int:
    """An empty one behind the last line break is none."""
    return len(lines) - (lines[-1] == "")


def _around(lines: Sequence[str], numbers: Iterable[int]) -> list[str]:
    """Up to CONTEXT lines, and none beyond the first that may not be shown."""
    found: list[str] = []
    for number in numbers:
        line = lines[number - 1]
        if len(found) == CONTEXT or not _KEY.fullmatch(line):  # a comment may say anything
            break
        found.append(line)
    return found


def _one(lines: Sequence[str], hunk: _Hunk, before: list[str], after: list[str], shift: int) -> str:
    old = list(lines[hunk.first - 1 : hunk.last])
    start, size = hunk.first - len(before), len(before) + len(old) + len(after)
    fresh = len(before) + len(hunk.new) + len(after)
    # A range of no lines is named by the line before it.
    ranges = f"@@ -{start - (size == 0)},{size} +{start + shift - (fresh == 0)},{fresh} @@\n"
    marked = [
        *((" ", line) for line in before),
        *(("-", line) for line in old),
        *(("+", line) for line in hunk.new),
        *((" ", line) for line in after),
    ]
    return ranges + "".join(f"{mark}{line}\n" for mark, line in marked)
