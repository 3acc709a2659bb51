"""Parses compose files: each service becomes a container that may run workers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from recovery.domain.tuning.worker_setup import is_store
from recovery.domain.tuning.workloads import EvictionSetting, InsertPoint, Workload, WorkloadKind, WorkloadSetting
from recovery.tuning.parsers import eviction_policy
from recovery.tuning.parsers.yaml_nodes import YamlMapping as Block
from recovery.tuning.parsers.yaml_nodes import YamlNode, YamlScalar, YamlSequence, word
from recovery.tuning.parsers.yaml_source import YamlSource, duration, whole, words

GRACE = 10.0  # seconds; docker's default
_REFERENCE = re.compile(r"\$\{(\w{1,80})(?::?-([^{}$]{0,80}))?\}|\$(\w{1,80})")
_PAIR, _ENTRY = "{0}={1}", '{0}: "{1}"'
_PAIR_IN_FLOW, _ENTRY_IN_FLOW = '"{0}={1}"', '"{0}": "{1}"'

Variables = Mapping[str, tuple[str, WorkloadSetting]]


class ComposeParser:
    """Parser of one compose file. `files`: the environment files given with it, by name; `.env` resolves its
    references.
    """

    def __init__(self, source: YamlSource, files: Mapping[str, Variables]) -> None:
        self._source = source
        self._budget = source.budget
        self._files = files
        self._outer = {name: found for variables in files.values() for name, found in variables.items()}

    def workloads(self, document: YamlNode) -> Iterator[Workload]:
        for key, value in self._budget.pairs(self._budget.at(document, "services")).values():
            if isinstance(value, Block):
                yield self._workload(key, value)

    def policies(self, document: YamlNode) -> Iterator[EvictionSetting]:
        for key, value in self._budget.pairs(self._budget.at(document, "services")).values():
            at = self._budget.pairs(value)
            yield from eviction_policy.of_command(
                self._source, key.value, *(at[name][1] for name in _COMMANDS if name in at)
            )

    def _workload(self, key: YamlScalar, body: Block) -> Workload:
        at = {name: value for name, (_, value) in self._budget.pairs(body).items()}
        settings, missing = self._from_files(at.get("env_file"))
        settings |= {setting.name: self._resolved(setting, raw) for setting, raw in self._environment(at)}
        if "extends" in at:
            missing.append("what it extends")
        found = Workload(
            name=key.value,
            kind=WorkloadKind.COMPOSE,
            file=self._source.name,
            line=key.line,
            image=word(at.get("image")),
            words=words(self._budget, at.get("entrypoint"), at.get("command")),
            settings=settings,
            grace=self._grace(body),
            default_grace=GRACE,
            replicas=self._replicas(at),
            is_probed="healthcheck" in at and word(self._budget.at(at["healthcheck"], "disable")) != "true",
            variables=self._variables(body, at.get("environment")),
            grace_room=self._source.room(body, "stop_grace_period: {1}s", at_top=True),
            missing=tuple(missing),
        )
        return replace(found, is_probed=None) if is_store(found) else found

    def _replicas(self, at: Mapping[str, YamlNode]) -> int | None:
        return whole(word(self._budget.at(at.get("deploy"), "replicas")) or word(at.get("scale")))

    def _environment(self, at: Mapping[str, YamlNode]) -> Iterator[tuple[WorkloadSetting, str]]:
        """Yields each setting with its written value, which may refer to a variable of the caller's environment."""
        written = at.get("environment")
        if isinstance(written, YamlSequence):
            for item in self._budget.items(written):
                if isinstance(item, YamlScalar):
                    yield self._source.pair(item), item.value.partition("=")[2]
        else:
            for key, value in self._budget.pairs(written).values():
                yield self._source.valued(key, value), word(value)

    def _resolved(self, setting: WorkloadSetting, raw: str) -> WorkloadSetting:
        """Resolves `${NAME:-30}` as `docker compose` does. The place is where the value truly stands."""
        if "$" not in raw:
            return setting
        found = _REFERENCE.fullmatch(raw)
        name = (found[1] or found[3]) if found else ""
        if name in self._outer:
            value, origin = self._outer[name]
            return replace(setting, value=value, place=origin.place, renames=setting.renames)
        if found is None or found[2] is None:
            return replace(setting, value="", place=None, is_hidden=True)
        place = setting.place
        if place is not None:
            quote = place.wrap[:1] in "\"'" and place.end_column - place.column == len(raw) + 2
            start = place.column + quote + found.start(2)
            end = place.column + quote + found.end(2)
            place = replace(place, column=start, end_column=end, wrap="{}")
        return replace(setting, value=found[2], place=place)

    def _from_files(self, named: YamlNode | None) -> tuple[dict[str, WorkloadSetting], list[str]]:
        settings: dict[str, WorkloadSetting] = {}
        missing: list[str] = []
        for item in self._budget.items(named) if isinstance(named, YamlSequence) else [named]:
            path = word(item) or word(self._budget.at(item, "path"))
            variables = self._files.get(path.rpartition("/")[2])
            if variables is not None:
                settings |= {name: setting for name, (_, setting) in variables.items()}
            elif path:
                missing.append(path)
        return settings, missing

    def _grace(self, body: Block) -> WorkloadSetting | None:
        found = self._budget.pairs(body).get("stop_grace_period")
        if found is None or not isinstance(found[1], YamlScalar):
            return None
        value = duration(found[1].value)
        place = self._source.span(found[1], "{}s") if found[1].line == found[0].line else None
        if value is None:
            return WorkloadSetting("stop_grace_period", "", place, is_hidden=True)
        return WorkloadSetting("stop_grace_period", f"{value:g}", place)

    def _variables(self, body: Block, written: YamlNode | None) -> InsertPoint | None:
        is_list = isinstance(written, YamlSequence)
        line, in_flow = (f"- {_PAIR}", _PAIR_IN_FLOW) if is_list else (_ENTRY, _ENTRY_IN_FLOW)
        return self._source.inside(body, "environment", line, listed=is_list, in_flow=in_flow)


_COMMANDS = ("entrypoint", "command")
