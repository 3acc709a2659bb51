"""Applies edits to a person's own text, and shows them as a unified diff that `patch` and `git apply` take.

Comments and order stay as they are. A diff goes to a page or a terminal, and the text may hold secrets beside what is
changed; so a line is shown only when nothing stands on it but a key, or a setting with a harmless value. Where another
one would have to be shown, the change is not, and is counted.

The header has the name as it is, for `patch -p0`, and below `b/`, for `patch -p1` and git. git takes a hunk only with a
line of context behind it, or at the file's end; where the next line may not be shown it wants `--unidiff-zero`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recovery.domain.redaction import redact
from recovery.domain.redaction.secret_finder import is_secret_key
from recovery.domain.tuning.findings import TextEdit
from recovery.domain.tuning.n8n_variables import NUMBERS, PHANTOMS, VARIABLES

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
# Keys of Kubernetes and compose whose values are no secret: they are shown around a change, and changed.
_OPEN_KEYS = (
    "apiVersion|kind|namespace|replicas|image|imagePullPolicy|restart|restartPolicy|command|entrypoint|init|hostname"
    "|type|path|port|protocol|containerPort|targetPort|number|scheme|initialDelaySeconds|periodSeconds|timeoutSeconds"
    "|failureThreshold|successThreshold|cpu|memory|limits|requests|minReplicas|maxReplicas|minReplicaCount"
    "|maxReplicaCount|pollingInterval|cooldownPeriod|listName|listLength|databaseIndex|address|averageUtilization"
    "|stabilizationWindowSeconds|terminationGracePeriodSeconds|stop_grace_period|stop_signal|serviceAccountName"
    "|priorityClassName|driver|retries|interval|timeout|start_period|condition|mountPath|readOnly"
)
_OPEN_VALUE = r"""["']?[A-Za-z][\w./:+-]{0,100}["']?|["']?\d{1,6}(?:\.\d{1,3})?(?:[a-zA-Z]{1,2})?["']?|true|false"""
_OPEN_LINE = re.compile(rf"\s*(?:- )?(?P<key>{_OPEN_KEYS}): (?:{_OPEN_VALUE})\s*")
_OPEN_VARIABLE = re.compile(
    r"""\s*(?:- )?["']?(?:export )?(?P<name>[A-Z0-9_]{1,80})(?:=|: )["']?(?P<value>[\w.:/-]{0,80})["']?\s*"""
)
_NAME_LINE = re.compile(r"""\s*- name: ["']?(?P<name>[A-Z0-9_]{1,80})["']?\s*""")
_VALUE_LINE = re.compile(r"""\s*value: ["']?(?P<value>[\w.:/-]{0,80})["']?\s*""")
_OPEN_NAMES = frozenset(
    {
        *("EXECUTIONS_MODE", "DB_TYPE", "DB_POSTGRESDB_HOST", "DB_POSTGRESDB_PORT", "DB_POSTGRESDB_DATABASE"),
        *("DB_POSTGRESDB_SCHEMA", "N8N_HOST", "N8N_PORT", "N8N_PROTOCOL", "N8N_LOG_LEVEL", "N8N_METRICS", "NODE_ENV"),
        *(
            "N8N_RUNNERS_ENABLED",
            "EXECUTIONS_PROCESS",
            "OFFLOAD_MANUAL_EXECUTIONS_TO_WORKERS",
            "TZ",
            "GENERIC_TIMEZONE",
        ),
    }
)
_SEPARATOR = re.compile(r"\s*|---\s*|\s*(?:- )?(?:<<|[\w.-]{1,60}): [*&][\w.-]{1,60}\s*")  # anchors and aliases too
_NO_LINE_BREAK = "\\ No newline at end of file\n"
_COMMENT = re.compile(rf"\s+#([^\w#]*(?:{_SAID}[^\w#]+)*{_SAID}?)$")
_ODD_BREAKS = re.compile("\r(?!\n)|[\x85\u2028\u2029]")  # lines to YAML, none to `patch`


@dataclass(frozen=True, slots=True)
class Patch:
    """Patch of one file. `diff` "": nothing of it may be shown. `withheld`: changes on lines that hold other text too.

    `has_context`: each hunk has what git asks for; without it `git apply` needs --unidiff-zero.
    """

    file: str
    diff: str
    withheld: int
    before: str
    after: str
    has_context: bool = True


@dataclass(frozen=True, slots=True)
class _Hunk:
    """Change of lines `first` … `last` into `new`; first = last + 1 where lines are only added."""

    first: int
    last: int
    new: tuple[str, ...]


def patch(file: str, text: str, edits: Iterable[TextEdit]) -> Patch | None:
    """Returns the patch of one file; None if nothing changes. Of edits that overlap the first one counts."""
    if _ODD_BREAKS.search(text):
        return None
    lines = text.split("\n")
    hunks = _hunks(lines, [_before_the_end(lines, edit) for edit in _apart(edits)])
    shown = [hunk for hunk in hunks if _may_be_shown(lines, hunk)]
    if not hunks:
        return None
    drawn = _drawn(lines, shown)
    diff = _head(file) + "".join(one.text for one in drawn) if drawn else ""
    has_context = all(one.has_context for one in drawn)
    return Patch(file, diff, len(hunks) - len(shown), text, _applied(lines, hunks), has_context)


def _before_the_end(lines: Sequence[str], edit: TextEdit) -> TextEdit:
    """Turns an addition behind a last line without a line break into a change of that line, as every diff tool does."""
    if edit.line <= len(lines):
        return edit
    column, text = len(lines[-1]), "\n" + edit.text.removesuffix("\n")
    return replace(edit, line=len(lines), column=column, end_line=len(lines), end_column=column, text=text)


def _head(file: str) -> str:
    end = "\t" if " " in file else ""  # where a name with spaces ends
    return f"--- {file}{end}\n+++ b/{file}{end}\n"


def _apart(edits: Iterable[TextEdit]) -> list[TextEdit]:
    kept: list[TextEdit] = []
    for edit in _gathered(edits):
        start, end = (edit.line, edit.column), (edit.end_line, edit.end_column)
        if all(start >= _end(other) or end <= (other.line, other.column) for other in kept):
            kept.append(edit)
    # Of lines added at one point the deepest belong to what ends there, and come first; equal ones stay in their order.
    return sorted(kept, key=lambda edit: (edit.line, edit.column, _end(edit), -_depth(edit)))


def _gathered(edits: Iterable[TextEdit]) -> list[TextEdit]:
    """Merges edits that open the same block at the same point into one, with its head."""
    found: dict[tuple[int, str], TextEdit] = {}
    plain: list[TextEdit] = []
    for edit in dict.fromkeys(edits):
        if not edit.head:
            plain.append(edit)
        elif (one := found.get((edit.line, edit.head))) is None:
            found[edit.line, edit.head] = edit
        else:
            found[edit.line, edit.head] = replace(one, text=one.text + edit.text)
    return [*plain, *(replace(edit, text=edit.head + edit.text, head="") for edit in found.values())]


def _depth(edit: TextEdit) -> int:
    return len(edit.text) - len(edit.text.lstrip(" "))


def _end(edit: TextEdit) -> tuple[int, int]:
    return edit.end_line, edit.end_column


def _hunks(lines: Sequence[str], edits: list[TextEdit]) -> list[_Hunk]:
    """Groups the edits into hunks; edits that touch the same line are one hunk."""
    groups: list[list[TextEdit]] = []
    for edit in edits:
        if groups and _reach(edit)[0] <= max(_reach(one)[1] for one in groups[-1]):
            groups[-1].append(edit)
        else:
            groups.append([edit])
    return [_hunk(lines, group) for group in groups]


def _reach(edit: TextEdit) -> tuple[int, int]:
    """Returns the first and the last line that an edit touches. An edit of whole lines ends one line before its end."""
    return edit.line, edit.end_line - (edit.column == 0 and edit.end_column == 0)


def _hunk(lines: Sequence[str], group: list[TextEdit]) -> _Hunk:
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
    if new and last == len(lines):  # no line break follows
        new[-1] = new[-1].removesuffix("\r")
    return _Hunk(first, last, tuple(new))


def _applied(lines: Sequence[str], hunks: list[_Hunk]) -> str:
    result = list(lines)
    for hunk in reversed(hunks):
        is_open_end_gone = hunk.last == len(result) and not hunk.new
        result[hunk.first - 1 : hunk.last] = hunk.new
        if is_open_end_gone:  # the line before it keeps its line break
            result.append("")
    return "\n".join(result)


def _may_be_shown(lines: Sequence[str], hunk: _Hunk) -> bool:
    numbers = range(hunk.first, hunk.last + 1)
    return all(_is_harmless(lines[number - 1]) or _is_open(lines, number) for number in numbers)


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
    """Returns True if the line is a list in brackets of n8n's own settings only: another variable's number may be a
    secret.
    """
    return _IN_BRACKETS.fullmatch(line) is not None and all(
        word in _KEYS_IN_BRACKETS or word in VARIABLES or word in PHANTOMS
        for word in re.findall(r"(?<![\w.])[A-Za-z_]\w*", line)
    )


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A hunk as text."""

    text: str
    has_context: bool


def _drawn(lines: Sequence[str], hunks: list[_Hunk]) -> list[_Drawn]:
    parts, shift, floor = [], 0, 0
    clusters = _clusters(lines, hunks)
    for index, cluster in enumerate(clusters):
        ceiling = clusters[index + 1][0].first - 1 if index + 1 < len(clusters) else _count(lines)
        last = cluster[-1].last
        before = _around(lines, range(cluster[0].first - 1, floor, -1))[::-1]
        after = _around(lines, range(last + 1, ceiling + 1))
        parts.append(_Drawn(_text(lines, cluster, before, after, shift), bool(after) or last >= _count(lines)))
        shift += sum(len(hunk.new) - (hunk.last - hunk.first + 1) for hunk in cluster)
        floor = last + len(after)
    return parts


def _clusters(lines: Sequence[str], hunks: list[_Hunk]) -> list[list[_Hunk]]:
    """Groups hunks that touch, or have only a few showable lines between them: every diff tool makes one of them."""
    found: list[list[_Hunk]] = []
    for hunk in hunks:
        gap = range(found[-1][-1].last + 1, hunk.first) if found else range(0)
        if found and len(gap) <= 2 * CONTEXT and all(_is_open(lines, number) for number in gap):
            found[-1].append(hunk)
        else:
            found.append([hunk])
    return found


def _count(lines: Sequence[str]) -> int:
    """Counts the lines, without the empty one behind the last line break."""
    return len(lines) - (lines[-1] == "")


def _around(lines: Sequence[str], numbers: Iterable[int]) -> list[str]:
    """Returns up to CONTEXT lines, up to the first that may not be shown."""
    found: list[str] = []
    for number in numbers:
        if len(found) == CONTEXT or not _is_open(lines, number):
            break
        found.append(lines[number - 1])
    return found


def _is_open(lines: Sequence[str], number: int) -> bool:
    """Returns True if an unchanged line may be shown as context. A comment may say anything, so it may not."""
    plain = lines[number - 1].rstrip("\r")
    if _KEY.fullmatch(plain) or _SEPARATOR.fullmatch(plain):
        return True
    if redact.text(plain) != plain:
        return False
    value, name = _VALUE_LINE.fullmatch(plain), _NAME_LINE.fullmatch(lines[number - 2]) if number > 1 else None
    if value and name:
        return _is_open_variable(name["name"], value["value"])
    variable = _OPEN_VARIABLE.fullmatch(plain)
    if variable and _is_open_variable(variable["name"], variable["value"]):
        return True
    return _OPEN_LINE.fullmatch(plain) is not None


def _is_open_variable(name: str, value: str) -> bool:
    if name in NUMBERS:
        return value.isdigit()
    return (name in _OPEN_NAMES or name in VARIABLES) and not is_secret_key(name)


def _text(lines: Sequence[str], cluster: list[_Hunk], before: list[str], after: list[str], shift: int) -> str:
    first, last = cluster[0].first, cluster[-1].last
    marked = [f" {line}" for line in before]
    reached = first
    for hunk in cluster:
        marked += [f" {line}" for line in lines[reached - 1 : hunk.first - 1]]
        marked += [f"-{line}" for line in lines[hunk.first - 1 : hunk.last]]
        marked += [f"+{line}" for line in hunk.new]
        reached = hunk.last + 1
    marked += [f" {line}" for line in after]
    start, size = first - len(before), len(before) + last - first + 1 + len(after)
    fresh = size + sum(len(hunk.new) - (hunk.last - hunk.first + 1) for hunk in cluster)
    # A range of no lines is named by the line before it.
    ranges = f"@@ -{start - (size == 0)},{size} +{start + shift - (fresh == 0)},{fresh} @@\n"
    is_open_ended = lines[-1] != "" and last + len(after) == len(lines)
    return ranges + _joined(marked, is_open_ended=is_open_ended)


def _joined(marked: list[str], *, is_open_ended: bool) -> str:
    """Joins the lines of a hunk. If the text does not end with a line break, the last line before the change and the
    last one after it are marked.
    """
    bare = set[int]()
    if is_open_ended:
        for marks in (" -", " +"):
            bare |= {max((at for at, line in enumerate(marked) if line[0] in marks), default=-1)}
    return "".join(f"{line}\n{_NO_LINE_BREAK if at in bare else ''}" for at, line in enumerate(marked))
