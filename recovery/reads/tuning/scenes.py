"""Parses all given files together; each file's kind is known by its content, whatever its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from recovery.domain.tuning.workloads import Kind, Scaler, Scene, Setting, StorePolicy, Workload
from recovery.errors import Illegible
from recovery.reads.tuning import env_lines
from recovery.reads.tuning.compose import Compose
from recovery.reads.tuning.kubernetes import Cluster, is_manifest
from recovery.reads.tuning.nodes import Budget, Scalar, documents, word
from recovery.reads.tuning.nodes import Mapping as Block
from recovery.reads.tuning.source import Source
from recovery.reads.tuning.texts import texts

_HELM = re.compile(r"\A(?:NAME|COMPUTED VALUES|USER-SUPPLIED VALUES)\b.*?^MANIFEST:[ \t]*$", re.DOTALL | re.MULTILINE)
_NOTES = re.compile(r"^NOTES:[ \t]*$.*\Z", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")


def scene(files: Iterable[tuple[str, bytes]]) -> Scene:
    """Parses the files. Raises Illegible, which names the file and the line."""
    given = texts(files)
    return _Reading(given).scene()


class _Reading:
    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given
        self._cluster = Cluster()
        self._workloads: list[Workload] = []
        self._scalers: list[Scaler] = []
        self._policies: list[StorePolicy] = []
        self._remarks: list[str] = []

    def scene(self) -> Scene:
        plain = {name: text for name, text in self._given.items() if text.strip() and env_lines.is_env(text)}
        variables = {name: env_lines.values(name, text) for name, text in plain.items()}
        for name, text in self._given.items():
            if not text.strip():
                self._remarks.append(f"{name} is empty.")
            elif name not in plain:
                self._yaml(name, text, variables)
        self._workloads += self._cluster.workloads()
        self._scalers += self._cluster.scalers()
        self._policies += self._cluster.policies()
        if not any(one.kind is Kind.COMPOSE for one in self._workloads):
            self._workloads += [env_lines.workload(name, text) for name, text in plain.items()]
        return Scene(
            self._given, tuple(self._workloads), tuple(self._scalers), tuple(self._policies), tuple(self._remarks)
        )

    def _yaml(self, name: str, text: str, variables: Mapping[str, Mapping[str, tuple[str, Setting]]]) -> None:
        source = Source(name, text, Budget(name))
        compose = Compose(source, variables)
        for document in documents(name, _without_helm(text)):
            if is_manifest(source, document):
                self._cluster.add(source, document)
            elif source.budget.at(document, "services") is not None:
                self._workloads += compose.workloads(document)
                self._policies += compose.policies(document)
            elif isinstance(document, Block) and _is_environment(document):
                self._workloads.append(_environment(source, document))
            elif not isinstance(document, Scalar) or word(document):
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


def _environment(source: Source, block: Block) -> Workload:
    settings = {key.value: source.valued(key, value) for key, value in source.budget.pairs(block).values()}
    room = source.room(block, '{0}: "{1}"')
    return Workload(source.name, Kind.ENVIRONMENT, source.name, block.line, settings=settings, variables=room)
