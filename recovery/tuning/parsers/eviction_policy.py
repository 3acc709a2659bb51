"""Finds the eviction policy of a Redis or Valkey in its command or its configuration file."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recovery.domain.tuning.workloads import EvictionSetting, TextSpan, WorkloadSetting
from recovery.tuning.parsers.yaml_nodes import YamlNode, YamlScalar, YamlSequence
from recovery.tuning.parsers.yaml_source import YamlSource

_NAME = "maxmemory-policy"
_OPTION = re.compile(r"--maxmemory-policy[ =]+[\"']?([a-z-]{3,20})")
_LINE = re.compile(r"\s*maxmemory-policy\s+[\"']?([a-z-]{3,20})")
_VALUE = re.compile(r"([a-z-]{3,20})")


def of_command(source: YamlSource, owner: str, *nodes: YamlNode | None) -> Iterator[EvictionSetting]:
    """Finds `--maxmemory-policy X` in a command, as two words of a list, or inside one line."""
    for node in nodes:
        parts = source.budget.items(node) if isinstance(node, YamlSequence) else [node]
        asked = False
        for part in parts:
            if not isinstance(part, YamlScalar):
                continue
            found = _VALUE.fullmatch(part.value) if asked else _OPTION.search(part.value)
            if found:
                yield _policy(source, owner, part.line, found[1], source.part(part, found))
            asked = part.value == f"--{_NAME}"


def of_file(source: YamlSource, owner: str, text: YamlScalar) -> Iterator[EvictionSetting]:
    """Finds the policy in a redis.conf inside a ConfigMap."""
    if _NAME not in text.value:
        return
    for number in range(text.line, min(text.last, len(source.lines)) + 1):
        found = _LINE.match(source.lines[number - 1])
        if found:
            place = TextSpan(source.name, number, found.start(1), number, found.end(1))
            yield _policy(source, owner, number, found[1], place)


def _policy(source: YamlSource, owner: str, line: int, value: str, place: TextSpan | None) -> EvictionSetting:
    return EvictionSetting(owner, WorkloadSetting(_NAME, value, place), source.name, line)
