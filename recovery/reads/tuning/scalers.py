"""What scales pods: Kubernetes' own autoscaler and KEDA's, and how calmly they take pods away."""

from __future__ import annotations

from recovery.domain.tuning.setups import number
from recovery.domain.tuning.workloads import Room, Scaler
from recovery.reads.tuning.nodes import Mapping as Block
from recovery.reads.tuning.nodes import Node, word
from recovery.reads.tuning.source import Source, whole

_WINDOW = "stabilizationWindowSeconds: {1}"
_PACE = "policies:\n  - type: Pods\n    value: 1\n    periodSeconds: 60"


def scaler(source: Source, item: Block, name: str, *, is_keda: bool) -> Scaler:
    budget, spec = source.budget, source.budget.at(item, "spec")
    path = ("advanced", "horizontalPodAutoscalerConfig", "behavior") if is_keda else ("behavior",)
    behaviour = budget.at(spec, *path)
    down = budget.at(behaviour, "scaleDown")
    window = source.number(down, "stabilizationWindowSeconds")
    is_paced = bool(budget.items(budget.at(down, "policies")))
    least, most = ("minReplicaCount", "maxReplicaCount") if is_keda else ("minReplicas", "maxReplicas")
    missing = [*([] if window else [_WINDOW]), *([] if is_paced else [_PACE])]
    return Scaler(
        name=name,
        target=word(budget.at(spec, "scaleTargetRef", "name")),
        file=source.name,
        space=word(budget.at(item, "metadata", "namespace")),
        line=item.line,
        least=whole(word(budget.at(spec, least))),
        most=whole(word(budget.at(spec, most))),
        window=number(window.value) if window else None,
        window_place=window.place if window else None,
        is_paced=is_paced,
        room=None if is_keda or not missing else _room(source, (down, behaviour, spec), "\n".join(missing)),
    )


def _room(source: Source, nodes: tuple[Node | None, ...], missing: str) -> Room | None:
    """For what is missing of a calm step down, in the innermost of its blocks that is there."""
    heads = ("", "scaleDown:\n", "behavior:\n  scaleDown:\n")
    for node, head in zip(nodes, heads, strict=True):
        if node is not None:
            depth = "  " * head.count("\n")
            return source.room(node, head + depth + missing.replace("\n", f"\n{depth}"))
    return None
