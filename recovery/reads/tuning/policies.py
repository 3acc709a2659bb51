"""Finds the eviction policy of a Redis or Valkey in its command or its configuration file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recovery.domain.tuning.workloads import Place, Setting, StorePolicy
from recovery.reads.tuning.nodes import Node, Scalar, Sequence
from recovery.reads.tuning.source import Source

_NAME = "maxmemory-policy"
_OPTION = re.compile(r"--maxmemory-policy[ =]+[\"']?([a-z-]{3,20})")
_LINE = re.compile(r"\s*maxmemory-policy\s+[\"']?([a-z-]{3,20})")
_VALUE = re.compile(r"([a-z-]{3,20})")


def of_command(source: Source, owner: str, *nodes: Node | None) -> Iterator[StorePolicy]:
    """Finds `--maxmemory-policy X` in a command, as two words of a list, or inside one line."""
    for node in nodes:
        parts = source.budget.items(node) if isinstance(node, Sequence) else [node]
        asked = False
        for part in parts:
            if not isinstance(part, Scalar):
                continue
            found = _VALUE.fullmatch(part.value) if asked else _OPTION.search(part.value)
            if found:
                yield _policy(source, owner, part.line, found[1], source.part(part, found))
            asked = part.value == f"--{_NAME}"


def of_file(source: Source, owner: str, text: Scalar) -> Iterator[StorePolicy]:
    """Finds the policy in a redis.conf inside a ConfigMap."""
    if _NAME not in text.value:
        return
    for number in range(text.line, min(text.last, len(source.lines)) + 1):
        found = _LINE.match(source.lines[number - 1])
        if found:
            place = Place(source.name, number, found.start(1), number, found.end(1))
            yield _policy(source, owner, number, found[1], place)


def _policy(source: Source, owner: str, line: int, value: str, place: Place | None) -> StorePolicy:
    return StorePolicy(owner, Setting(_NAME, value, place), source.name, line)
