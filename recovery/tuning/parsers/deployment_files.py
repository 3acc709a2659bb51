"""Parses all given files together; each file's kind is known by its content, whatever its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from recovery.domain.tuning.workloads import (
    Autoscaler,
    DeploymentFiles,
    EvictionSetting,
    Workload,
    WorkloadKind,
    WorkloadSetting,
)
from recovery.errors import Illegible
from recovery.tuning.parsers import env_file
from recovery.tuning.parsers.compose import ComposeParser
from recovery.tuning.parsers.kubernetes import ManifestParser, is_manifest
from recovery.tuning.parsers.uploads import decode_files
from recovery.tuning.parsers.yaml_nodes import ParseBudget, YamlScalar, documents, word
from recovery.tuning.parsers.yaml_nodes import YamlMapping as Block
from recovery.tuning.parsers.yaml_source import YamlSource

_HELM = re.compile(r"\A(?:NAME|COMPUTED VALUES|USER-SUPPLIED VALUES)\b.*?^MANIFEST:[ \t]*$", re.DOTALL | re.MULTILINE)
_NOTES = re.compile(r"^NOTES:[ \t]*$.*\Z", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def parse_files(files: Iterable[tuple[str, bytes]]) -> DeploymentFiles:
    """Parses the files. Raises Illegible, which names the file and the line."""
    given = decode_files(files)
    return _Reading(given).deployment()


class _Reading:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._cluster = ManifestParser()
        self._workloads: list[Workload] = []
        self._scalers: list[Autoscaler] = []
        self._policies: list[EvictionSetting] = []
        self._remarks: list[str] = []

    def deployment(self) -> DeploymentFiles:
        plain = {name: text for name, text in self._given.items() if text.strip() and env_file.is_env(text)}
        variables = {name: env_file.values(name, text) for name, text in plain.items()}
        for name, text in self._given.items():
            if not text.strip():
                self._remarks.append(f"{name} is empty.")
            elif name not in plain:
                self._yaml(name, text, variables)
        self._workloads += self._cluster.workloads()
        self._scalers += self._cluster.scalers()
        self._policies += self._cluster.policies()
        if not any(one.kind is WorkloadKind.COMPOSE for one in self._workloads):
            self._workloads += [env_file.workload(name, text) for name, text in plain.items()]
        return DeploymentFiles(
            self._given, tuple(self._workloads), tuple(self._scalers), tuple(self._policies), tuple(self._remarks)
        )

    def _yaml(self, name: str, text: str, variables: Mapping[str, Mapping[str, tuple[str, WorkloadSetting]]]) -> None:
        source = YamlSource(name, text, ParseBudget(name))
        compose = ComposeParser(source, variables)
        for document in documents(name, _without_helm(text)):
            if is_manifest(source, document):
                self._cluster.add(source, document)
            elif source.budget.at(document, "services") is not None:
                self._workloads += compose.workloads(document)
                self._policies += compose.policies(document)
            elif isinstance(document, Block) and _is_environment(document):
                self._workloads.append(_environment(source, document))
            elif not isinstance(document, YamlScalar) or word(document):
                why = "neither an environment file, nor a compose file, nor a Kubernetes manifest."
                raise Illegible(name, why, line=document.line)


def _without_helm(text: str) -> str:
    """Empties the lines that `helm get all` and a dry run add to the manifest, so that line numbers stay."""
    is_told = _HELM.match(text) is not None
    for told in (_HELM, _NOTES):
        found = told.search(text) if is_told else None
        if found:
            text = text[: found.start()] + "\n" * found[0].count("\n") + text[found.end() :]
    return text


def _is_environment(block: Block) -> bool:
    """Returns True for a mapping of variables, as values files and ConfigMaps have them."""
    return bool(block.pairs) and all(_VARIABLE.fullmatch(key.value) for key, _ in block.pairs)


def _environment(source: YamlSource, block: Block) -> Workload:
    settings = {key.value: source.valued(key, value) for key, value in source.budget.pairs(block).values()}
    room = source.room(block, '{0}: "{1}"')
    return Workload(source.name, WorkloadKind.ENVIRONMENT, source.name, block.line, settings=settings, variables=room)
