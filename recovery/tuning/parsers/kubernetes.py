"""Parses Kubernetes manifests, also as Helm writes them: containers, their ConfigMaps and Secrets, and autoscalers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recovery.domain.tuning.worker_setup import is_store, number
from recovery.domain.tuning.workloads import (
    Autoscaler,
    EvictionSetting,
    SpotNodes,
    TextSpan,
    Workload,
    WorkloadKind,
    WorkloadSetting,
)
from recovery.tuning.parsers import eviction_policy
from recovery.tuning.parsers.autoscalers import scaler
from recovery.tuning.parsers.yaml_nodes import YamlMapping as Block
from recovery.tuning.parsers.yaml_nodes import YamlNode, YamlScalar, word
from recovery.tuning.parsers.yaml_source import YamlSource, whole, words

# -- spot nodes
# Finds out whether a pod runs on spot nodes, by its node selector, affinity and tolerations.


# Seconds that a pod has when its node is taken back, from the clouds' own documents. GKE leaves 15 of its 30 s to pods
# that are not the system's, whatever their manifest says; more can be set for a node pool since GKE 1.35.
_CLOUDS = {
    "cloud.google.com/gke-spot": ("GKE", 15.0, "true"),
    "cloud.google.com/gke-preemptible": ("GKE", 15.0, "true"),
    "cloud.google.com/gke-provisioning": ("GKE", 15.0, "spot"),
    "kubernetes.azure.com/scalesetpriority": ("AKS", 30.0, "spot"),
    "eks.amazonaws.com/capacityType": ("EKS", 120.0, "spot"),
    "karpenter.sh/capacity-type": ("AWS", 120.0, "spot"),
}
_REQUIRED = ("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def spot_nodes(source: YamlSource, spec: YamlNode | None) -> SpotNodes | None:
    """Returns the spot nodes that a pod has to run on, else those that it may run on."""
    certain = next(_known(_selected(source, spec)), None) or next(_known(_required(source, spec)), None)
    if certain:
        return SpotNodes(*certain)
    possible = next(_known(_tolerated(source, spec)), None)
    return SpotNodes(*possible, is_certain=False) if possible else None


def _known(pairs: Iterator[tuple[str, str]]) -> Iterator[tuple[str, float]]:
    """Yields the cloud and its notice for each known label; a value of "" is any."""
    for label, value in pairs:
        cloud, notice, expected = _CLOUDS.get(label, ("", 0.0, ""))
        if cloud and value.lower() in ("", expected):
            yield cloud, notice


def _selected(source: YamlSource, spec: YamlNode | None) -> Iterator[tuple[str, str]]:
    for key, value in source.budget.pairs(source.budget.at(spec, "nodeSelector")).values():
        yield key.value, word(value)


def _required(source: YamlSource, spec: YamlNode | None) -> Iterator[tuple[str, str]]:
    terms = source.budget.items(source.budget.at(spec, "affinity", "nodeAffinity", *_REQUIRED))
    for term in terms if len(terms) == 1 else ():  # one of several is enough for the scheduler
        for label, values in _expressions(source, term):
            if len(values) == 1:
                yield label, values[0]


def _tolerated(source: YamlSource, spec: YamlNode | None) -> Iterator[tuple[str, str]]:
    budget = source.budget
    for one in budget.items(budget.at(spec, "tolerations")):
        yield word(budget.at(one, "key")), word(budget.at(one, "value"))
    affinity = budget.at(spec, "affinity", "nodeAffinity")
    wanted = [budget.at(one, "preference") for one in budget.items(budget.at(affinity, _PREFERRED))]
    for term in (*budget.items(budget.at(affinity, *_REQUIRED)), *wanted):
        for label, values in _expressions(source, term):
            yield from ((label, value) for value in values)


def _expressions(source: YamlSource, term: YamlNode | None) -> Iterator[tuple[str, list[str]]]:
    """Yields label and values of `key In values`; other operators do not matter here."""
    for one in source.budget.items(source.budget.at(term, "matchExpressions")):
        if isinstance(one, Block) and word(source.budget.at(one, "operator")) == "In":
            values = [word(value) for value in source.budget.items(source.budget.at(one, "values"))]
            yield word(source.budget.at(one, "key")), values


# -- kubernetes


GRACE = 30.0  # seconds; Kubernetes' default
_PODS = frozenset({"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Rollout", "Pod"})
_SLEEP = re.compile(r"(?:.*/)?sleep[ =]+(\d{1,6}(?:\.\d{1,3})?)s?\s*;?\s*")
_SECONDS = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)s?")
_PAIR = '- name: {0}\n  value: "{1}"'
_IN_FLOW = '{{"name": "{0}", "value": "{1}"}}'
_PRE_STOP = 'preStop:\n  exec:\n    command: ["sleep", "{1}"]'

Item = tuple[YamlSource, Block]


def is_manifest(source: YamlSource, document: YamlNode) -> bool:
    return bool(word(source.budget.at(document, "kind")) and word(source.budget.at(document, "apiVersion")))


class ManifestParser:
    """Parser of all manifests that were given at once: one may name another."""

    def __init__(self) -> None:
        self._items: list[Item] = []
        self._named: dict[tuple[str, str], Item] = {}

    def add(self, source: YamlSource, document: YamlNode) -> None:
        """Adds a manifest; of a list, each of its items."""
        if word(source.budget.at(document, "kind")).endswith("List"):
            listed = source.budget.items(source.budget.at(document, "items"))
        else:
            listed = [document]
        for item in listed:
            if isinstance(item, Block):
                self._items.append((source, item))
                self._named[_kind(source, item), _name(source, item)] = source, item

    def workloads(self) -> Iterator[Workload]:
        for source, item in self._items:
            if _kind(source, item) in _PODS:
                is_pod = _kind(source, item) == "Pod"
                spec = source.budget.at(item, "spec") if is_pod else source.budget.at(item, "spec", "template", "spec")
                if isinstance(spec, Block):
                    yield from self._containers(source, item, spec)

    def scalers(self) -> Iterator[Autoscaler]:
        for source, item in self._items:
            kind = _kind(source, item)
            if kind in ("HorizontalPodAutoscaler", "ScaledObject"):
                yield scaler(source, item, _name(source, item), is_keda=kind == "ScaledObject")

    def policies(self) -> Iterator[EvictionSetting]:
        for source, item in self._items:
            if _kind(source, item) == "ConfigMap":
                for _, value in source.budget.pairs(source.budget.at(item, "data")).values():
                    if isinstance(value, YamlScalar):
                        yield from eviction_policy.of_file(source, _name(source, item), value)
            for container in _pod_containers(source, item):
                nodes = (source.budget.at(container, "command"), source.budget.at(container, "args"))
                yield from eviction_policy.of_command(source, _name(source, item), *nodes)

    def _containers(self, source: YamlSource, item: Block, spec: Block) -> Iterator[Workload]:
        listed = [one for one in source.budget.items(source.budget.at(spec, "containers")) if isinstance(one, Block)]
        for container in listed:
            own = word(source.budget.at(container, "name"))
            name = _name(source, item) if len(listed) == 1 else f"{_name(source, item)}/{own}"
            yield self._workload(source, item, spec, container, name)

    def _workload(self, source: YamlSource, item: Block, spec: Block, container: Block, name: str) -> Workload:
        budget = source.budget
        at = {key: value for key, (_, value) in budget.pairs(container).items()}
        settings, missing = self._from_maps(source, at.get("envFrom"))
        settings |= self._environment(source, at.get("env"))
        pause, pause_place = _pause(source, at.get("lifecycle"))
        found = Workload(
            name=name,
            kind=WorkloadKind.KUBERNETES,
            file=source.name,
            line=container.line,
            image=word(at.get("image")),
            words=words(budget, at.get("command"), at.get("args")),
            settings=settings,
            grace=source.number(spec, "terminationGracePeriodSeconds"),
            default_grace=GRACE,
            pre_stop=pause,
            pre_stop_place=pause_place,
            is_probed="livenessProbe" in at or "readinessProbe" in at,
            replicas=whole(word(budget.at(item, "spec", "replicas"))),
            variables=source.inside(container, "env", _PAIR, listed=True, in_flow=_IN_FLOW),
            grace_room=source.room(spec, "terminationGracePeriodSeconds: {1}", at_top=True),
            pre_stop_room=source.inside(container, "lifecycle", _PRE_STOP),
            missing=tuple(missing),
            space=word(budget.at(item, "metadata", "namespace")),
            spot=spot_nodes(source, spec),
        )
        return (
            found
            if not is_store(found)
            else Workload(found.name, found.kind, found.file, found.line, found.image, found.words)
        )

    def _from_maps(self, source: YamlSource, listed: YamlNode | None) -> tuple[dict[str, WorkloadSetting], list[str]]:
        settings: dict[str, WorkloadSetting] = {}
        missing: list[str] = []
        for entry in source.budget.items(listed):
            prefix = word(source.budget.at(entry, "prefix"))
            for kind, path in (("ConfigMap", "configMapRef"), ("Secret", "secretRef")):
                name = word(source.budget.at(entry, path, "name"))
                found = self._map(kind, name) if name else None
                if found is not None and not prefix:
                    settings |= found
                elif name:
                    missing.append(f"the {kind} {name}")
        return settings, missing

    def _map(self, kind: str, name: str) -> dict[str, WorkloadSetting] | None:
        """Returns the settings of a ConfigMap, or only the names of a Secret's."""
        if (kind, name) not in self._named:
            return None
        source, item = self._named[kind, name]
        parts = [source.budget.pairs(source.budget.at(item, part)) for part in ("data", "stringData")]
        pairs = parts[0] | parts[1]
        if kind == "Secret":
            return {key: WorkloadSetting(key, is_hidden=True) for key in pairs}
        return {name: source.valued(key, value) for name, (key, value) in pairs.items()}

    def _environment(self, source: YamlSource, listed: YamlNode | None) -> dict[str, WorkloadSetting]:
        found: dict[str, WorkloadSetting] = {}
        for entry in source.budget.items(listed):
            pairs = source.budget.pairs(entry)
            if not isinstance(entry, Block) or "name" not in pairs or not isinstance(pairs["name"][1], YamlScalar):
                continue
            name = pairs["name"][1]
            if "valueFrom" in pairs:
                found[name.value] = self._referred(source, name.value, pairs["valueFrom"][1])
            else:
                found[name.value] = source.named(entry, name, pairs["value"][1] if "value" in pairs else None)
        return found

    def _referred(self, source: YamlSource, name: str, reference: YamlNode) -> WorkloadSetting:
        origin = self._map("ConfigMap", word(source.budget.at(reference, "configMapKeyRef", "name"))) or {}
        key = word(source.budget.at(reference, "configMapKeyRef", "key"))
        if key in origin and key == name:
            return origin[key]
        return WorkloadSetting(name, is_hidden=True)


def _kind(source: YamlSource, item: Block) -> str:
    return word(source.budget.at(item, "kind"))


def _name(source: YamlSource, item: Block) -> str:
    return word(source.budget.at(item, "metadata", "name")) or "unnamed"


def _pod_containers(source: YamlSource, item: Block) -> list[YamlNode]:
    if _kind(source, item) not in _PODS:
        return []
    for path in (("spec", "template", "spec", "containers"), ("spec", "containers")):
        if found := source.budget.items(source.budget.at(item, *path)):
            return found
    return []


def _pause(source: YamlSource, lifecycle: YamlNode | None) -> tuple[float | None, TextSpan | None]:
    """Returns the seconds of the preStop hook, and where they stand; None for a hook of unknown length."""
    hook = source.budget.at(lifecycle, "preStop")
    if hook is None:
        return 0.0, None
    slept = source.budget.at(hook, "sleep", "seconds")
    if isinstance(slept, YamlScalar):
        return number(slept.value), source.span(slept, "{}")
    command = source.budget.items(source.budget.at(hook, "exec", "command"))
    return _slept(source, [part for part in command if isinstance(part, YamlScalar)])


def _slept(source: YamlSource, parts: list[YamlScalar]) -> tuple[float | None, TextSpan | None]:
    """Returns the seconds of `sleep 5`, as two words or as a shell line that does nothing else."""
    if len(parts) == 2 and parts[0].value.rpartition("/")[2] == "sleep":
        found = _SECONDS.fullmatch(parts[1].value)
    else:
        found = _SLEEP.fullmatch(parts[-1].value) if parts else None
    return (float(found[1]), source.part(parts[-1], found)) if found else (None, None)
