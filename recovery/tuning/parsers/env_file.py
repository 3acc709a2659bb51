"""Parses environment files: `NAME=value` lines as docker, systemd and a shell's `source` take them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recovery.domain.tuning.n8n_variables import READ
from recovery.domain.tuning.workloads import InsertPoint, TextSpan, Workload, WorkloadKind, WorkloadSetting
from recovery.errors import Illegible

LINES_LIMIT = 20_000
_LINE = re.compile(r"\s*(export\s+|set\s+|-e\s+)?([A-Za-z_][A-Za-z0-9_.-]*)(\s*)=[ \t]*(.*)")
_SIGN = re.compile(r"(?:export\s+)?[A-Za-z_][A-Za-z0-9_.-]*\s*=")
_UNQUOTED = re.compile(r"(.*?)(?:\s+#.*|\s*)", re.DOTALL)


def is_env(text: str) -> bool:
    """Returns True for an environment file, by its first line that is no comment."""
    said = (line.strip() for line in text.splitlines())
    first = next((line for line in said if line and not line.startswith("#")), "")
    return _SIGN.match(first) is not None


def workload(name: str, text: str) -> Workload:
    """Returns the variables as a workload without a container. Raises Illegible."""
    settings = {setting.name: setting for setting in _settings(name, text)}
    count = text.count("\n") + (not text.endswith("\n"))
    room = InsertPoint(name, count, 0, "{0}={1}")
    return Workload(name, WorkloadKind.ENVIRONMENT, name, 1, settings=settings, pre_stop=0.0, variables=room)


def values(name: str, text: str) -> dict[str, tuple[str, WorkloadSetting]]:
    """Returns every variable with its value, which may be secret: only for references by name in compose files."""
    return {setting.name: (value, setting) for value, setting in _read(name, text)}


def _settings(name: str, text: str) -> Iterator[WorkloadSetting]:
    for _, setting in _read(name, text):
        yield setting


def _read(name: str, text: str) -> Iterator[tuple[str, WorkloadSetting]]:
    lines = text.split("\n")
    if len(lines) > LINES_LIMIT:
        raise Illegible(name, f"more than {LINES_LIMIT:,} lines.")
    number = 0
    while number < len(lines):
        number += 1
        line = lines[number - 1].rstrip("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            if not re.fullmatch(r"\s*(?:export\s+)?[A-Za-z_][\w.-]*\s*", line):  # a name alone passes the caller's on
                raise Illegible(name, "neither a comment nor NAME=value.", line=number)
            continue
        closed = _closing(lines, number, found[4])
        if closed > number:
            yield "", WorkloadSetting(found[2], is_hidden=True)  # no value of several lines is read
            number = closed
            continue
        yield _one(name, number, found)


def _closing(lines: list[str], number: int, rest: str) -> int:
    """Returns the line on which a quoted value ends; its own line if it is not quoted, or its quote is never closed."""
    quote = rest[:1]
    if quote not in ('"', "'") or quote in rest[1:]:
        return number
    return next((at for at in range(number + 1, len(lines) + 1) if quote in lines[at - 1]), number)


def _one(name: str, number: int, found: re.Match[str]) -> tuple[str, WorkloadSetting]:
    start, rest = found.start(4), found[4]
    if rest[:1] in ('"', "'") and rest[0] in rest[1:]:
        end = rest.index(rest[0], 1)
        value, start, stop = rest[1:end], start + 1, start + end
    else:
        unquoted = _UNQUOTED.fullmatch(rest)
        value = unquoted[1] if unquoted else rest
        stop = start + len(value)
    place = TextSpan(name, number, start, number, stop, first=number, last=number)
    renames = TextSpan(name, number, found.start(2), number, found.end(2))
    return value, WorkloadSetting(found[2], value if found[2] in READ else "", place, renames)
