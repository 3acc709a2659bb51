"""Finds out whether a pod runs on spot nodes, by its node selector, affinity and tolerations."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.domain.tuning.workloads import SpotNodes
from recovery.tuning.parsers.yaml_nodes import YamlMapping as Block
from recovery.tuning.parsers.yaml_nodes import YamlNode, word
from recovery.tuning.parsers.yaml_source import YamlSource

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
