"""Parses autoscalers, Kubernetes' own and KEDA's, and how fast they remove pods."""

from __future__ import annotations

from recovery.domain.tuning.worker_setup import number
from recovery.domain.tuning.workloads import Autoscaler, InsertPoint, ScaleDownPolicy, ScalerListKey
from recovery.tuning.parsers.yaml_nodes import YamlMapping as Block
from recovery.tuning.parsers.yaml_nodes import YamlNode, YamlScalar, word
from recovery.tuning.parsers.yaml_source import YamlSource, whole

KEDA_LEAST, KEDA_MOST = 0, 100  # KEDA's defaults
KEDA_COOLDOWN = 300.0  # seconds
_WINDOW = "stabilizationWindowSeconds: {1}"
_PACE = "policies:\n  - type: Pods\n    value: 1\n    periodSeconds: 60"
_HPA = ("behavior", "scaleDown")
_KEDA = ("advanced", "horizontalPodAutoscalerConfig", *_HPA)


def scaler(source: YamlSource, item: Block, name: str, *, is_keda: bool) -> Autoscaler:
    budget, spec = source.budget, source.budget.at(item, "spec")
    down = budget.at(spec, *(_KEDA if is_keda else _HPA))
    window = source.number(down, "stabilizationWindowSeconds")
    policies = tuple(_policy(source, one) for one in budget.items(budget.at(down, "policies")))
    least, most = ("minReplicaCount", "maxReplicaCount") if is_keda else ("minReplicas", "maxReplicas")
    written = source.number(spec, least)
    missing = [*([] if window else [_WINDOW]), *([] if policies else [_PACE])]
    return Autoscaler(
        name=name,
        target=word(budget.at(spec, "scaleTargetRef", "name")),
        file=source.name,
        space=word(budget.at(item, "metadata", "namespace")),
        line=item.line,
        least=whole(written.value) if written else KEDA_LEAST if is_keda else None,
        most=_most(source, spec, most, is_keda=is_keda),
        window=number(window.value) if window else None,
        window_place=window.place if window else None,
        policies=policies,
        select=word(budget.at(down, "selectPolicy")) or "Max",
        room=_room(source, spec, _KEDA if is_keda else _HPA, "\n".join(missing)) if missing else None,
        is_keda=is_keda,
        cooldown=_cooldown(source, spec) if is_keda else None,
        least_place=written.place if written else None,
        least_room=None if written or not is_keda else source.room(spec, "minReplicaCount: {1}"),
        keys=tuple(_keys(source, spec)) if is_keda else (),
    )


def _most(source: YamlSource, spec: YamlNode | None, name: str, *, is_keda: bool) -> int | None:
    written = source.number(spec, name)
    return whole(written.value) if written else KEDA_MOST if is_keda else None


def _cooldown(source: YamlSource, spec: YamlNode | None) -> float | None:
    written = source.number(spec, "cooldownPeriod")
    return number(written.value) if written else KEDA_COOLDOWN


def _policy(source: YamlSource, item: YamlNode) -> ScaleDownPolicy:
    kind = source.budget.at(item, "type")
    value, period = source.number(item, "value"), source.number(item, "periodSeconds")
    return ScaleDownPolicy(
        kind=word(kind),
        value=number(value.value) if value else None,
        period=number(period.value) if period else None,
        kind_place=source.span(kind, "{}") if isinstance(kind, YamlScalar) else None,
        value_place=value.place if value else None,
        period_place=period.place if period else None,
    )


def _keys(source: YamlSource, spec: YamlNode | None) -> list[ScalerListKey]:
    """Returns the lists that triggers on Redis watch, also by Sentinel or in a Cluster."""
    found: list[ScalerListKey] = []
    for trigger in source.budget.items(source.budget.at(spec, "triggers")):
        listed = source.budget.at(trigger, "metadata", "listName")
        if (
            word(source.budget.at(trigger, "type")).startswith("redis")
            and isinstance(listed, YamlScalar)
            and word(listed)
        ):
            found.append(ScalerListKey(word(listed), source.span(listed, "{}")))
    return found


def _room(source: YamlSource, spec: YamlNode | None, path: tuple[str, ...], missing: str) -> InsertPoint | None:
    """Returns where the missing settings of a slow scale-down go: into the innermost of their blocks that exists."""
    node, rest = spec, path
    while rest and (inner := source.budget.at(node, rest[0])) is not None:
        node, rest = inner, rest[1:]
    heads = "".join(f"{'  ' * depth}{name}:\n" for depth, name in enumerate(rest))
    depth = "  " * len(rest)
    return source.room(node, heads + depth + missing.replace("\n", f"\n{depth}"))
