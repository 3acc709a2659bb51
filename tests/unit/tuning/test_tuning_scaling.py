"""What is found of autoscalers, of nodes that a cloud takes back, and of the connections of all processes together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recovery.domain.tuning.findings import Severity
from tests.support.tuning import KUBERNETES, TOOLS, finding, judged, kinds, patched, patched_by

WORKER = KUBERNETES.partition("---\n")[0]
HPA = KUBERNETES.partition("---\n")[2]
KEDA = """apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: n8n-worker
spec:
  scaleTargetRef:
    name: n8n-worker
  minReplicaCount: 0
  maxReplicaCount: 20
  cooldownPeriod: 30
  triggers:
    - type: redis
      metadata:
        listName: bull:jobs:wait
        listLength: "10"
"""


def scaled(scaler: str, worker: str = WORKER) -> dict[str, str]:
    return {"k.yaml": f"{worker}---\n{scaler}"}


def hpa(*down: str) -> dict[str, str]:
    """The autoscaler with these lines below its scaleDown."""
    return scaled(HPA + "  behavior:\n    scaleDown:\n" + "".join(f"      {line}\n" for line in down))


def policy(kind: str, value: int, period: int) -> tuple[str, ...]:
    return ("policies:", f"  - type: {kind}", f"    value: {value}", f"    periodSeconds: {period}")


WINDOW = "stabilizationWindowSeconds: 300"


# -- how fast workers are taken away


@pytest.mark.parametrize(
    ("lines", "is_hasty"),
    [
        ((WINDOW, *policy("Pods", 1, 60)), False),
        ((WINDOW, *policy("Pods", 2, 60)), False),
        ((WINDOW, *policy("Percent", 10, 60)), False),
        ((WINDOW, *policy("Percent", 100, 15)), True),
        ((WINDOW, *policy("Pods", 4, 60)), True),
        ((WINDOW,), True),
        (("stabilizationWindowSeconds: 60", *policy("Pods", 1, 60)), True),
        (("stabilizationWindowSeconds: 0", "selectPolicy: Disabled"), False),
        ((WINDOW, *policy("Percent", 100, 15), "  - type: Pods", "    value: 1", "    periodSeconds: 60"), True),
        (
            (
                WINDOW,
                "selectPolicy: Min",
                *policy("Percent", 100, 15),
                "  - type: Pods",
                "    value: 1",
                "    periodSeconds: 60",
            ),
            False,
        ),
    ],
)
def test_a_step_down_is_hasty_by_its_window_or_by_the_policy_that_counts(
    lines: tuple[str, ...], is_hasty: bool
) -> None:
    found = judged(hpa(*lines))
    assert ("hasty-scale-down" in kinds(found)) is is_hasty
    if is_hasty:
        assert "hasty-scale-down" not in kinds(judged(patched(found, hpa(*lines))))


def test_the_pace_that_is_written_is_told() -> None:
    said = finding(judged(hpa(WINDOW, *policy("Percent", 100, 15))), "hasty-scale-down").says
    assert said.startswith("It scales workers down after 300 s without load, 100% of them within 15 s.")


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("tool", TOOLS)
def test_the_patch_changes_the_whole_policy(tool: str, tmp_path: Path) -> None:
    files = hpa("stabilizationWindowSeconds: 60", *policy("Percent", 100, 15))
    after = patched_by(tool, judged(files), files, tmp_path)["k.yaml"]
    assert after == patched(judged(files), files)["k.yaml"]
    for line in (WINDOW, "- type: Pods", "value: 1", "periodSeconds: 60"):
        assert f" {line}\n" in after
    assert "Percent" not in after
    assert "periodSeconds: 15" not in after


def test_a_window_that_is_too_short_does_not_hide_that_no_policy_is_there() -> None:
    after = patched(judged(hpa("stabilizationWindowSeconds: 60")), hpa("stabilizationWindowSeconds: 60"))["k.yaml"]
    assert WINDOW in after
    assert "- type: Pods" in after


# -- KEDA


def test_keda_gets_a_calm_step_down_where_it_takes_one() -> None:
    files = scaled(KEDA.replace("minReplicaCount: 0", "minReplicaCount: 1"))
    after = patched(judged(files), files)["k.yaml"]
    assert re.search(r"advanced:\n    horizontalPodAutoscalerConfig:\n      behavior:\n        scaleDown:\n", after)
    assert "hasty-scale-down" not in kinds(judged({"k.yaml": after}))


@pytest.mark.parametrize(
    ("line", "after"),
    [
        ("  minReplicaCount: 0\n", "30 s after"),
        ("", "30 s after"),
        ("  minReplicaCount: 1\n", ""),
        ("  minReplicaCount: 3\n", ""),
    ],
)
def test_no_worker_left_is_no_check_left(line: str, after: str) -> None:
    files = scaled(KEDA.replace("  minReplicaCount: 0\n", line))
    found = judged(files)
    assert ("scales-to-zero" in kinds(found)) is bool(after)
    if after:
        said = finding(found, "scales-to-zero")
        assert (
            f"the last one is stopped {after} its triggers go quiet (cooldownPeriod), whatever scaleDown says"
            in said.says
        )
        assert "no stalled check runs" in said.says
        assert said.remedy.startswith("minReplicaCount: 1.")
        text = patched(found, files)["k.yaml"]
        assert "minReplicaCount: 1\n" in text
        assert "scales-to-zero" not in kinds(judged({"k.yaml": text}))


def test_without_a_cooldown_it_is_kedas_own() -> None:
    said = finding(judged(scaled(KEDA.replace("  cooldownPeriod: 30\n", ""))), "scales-to-zero").says
    assert "stopped 300 s after" in said


def test_triggers_that_count_only_what_waits_interrupt_what_runs() -> None:
    said = finding(judged(scaled(KEDA)), "scales-to-zero")
    assert "do not count jobs that run" in said.says
    assert "bull:jobs:active" in said.remedy
    more = '    - type: redis\n      metadata:\n        listName: bull:jobs:active\n        listLength: "10"\n'
    assert "do not count jobs that run" not in finding(judged(scaled(KEDA + more)), "scales-to-zero").says


@pytest.mark.parametrize(
    ("key", "prefix", "right"),
    [
        ("bull:jobs:wait", "", "bull:jobs:wait"),
        ("bull:jobs-heavy:wait", "", "bull:jobs-heavy:wait"),
        ('"{bull}:jobs:wait"', "", '"{bull}:jobs:wait"'),
        ("bull:n8n:wait", "", "bull:jobs:wait"),
        ("bull:jobs", "", "bull:jobs:wait"),
        ("bull:jobs:wait", "acme", "acme:jobs:wait"),
        ("acme:jobs:wait", "acme", "acme:jobs:wait"),
    ],
)
def test_the_list_that_keda_watches_is_the_one_that_n8n_writes(key: str, prefix: str, right: str) -> None:
    head = "          env:\n"
    more = f"            - {{name: QUEUE_BULL_PREFIX, value: {prefix}}}\n" if prefix else ""
    files = scaled(KEDA.replace("bull:jobs:wait", key), WORKER.replace(head, head + more))
    found = judged(files)
    assert ("wrong-key" in kinds(found)) is (key != right)
    assert f"listName: {right}\n" in patched(found, files)["k.yaml"]
    if key != right:
        assert finding(found, "wrong-key").severity is Severity.HIGH
        assert finding(found, "wrong-key").remedy == f"listName: {right}."


def test_a_prefix_that_is_not_known_says_nothing_of_the_key() -> None:
    head = "          env:\n"
    more = "            - {name: QUEUE_BULL_PREFIX, valueFrom: {secretKeyRef: {name: s, key: p}}}\n"
    assert "wrong-key" not in kinds(
        judged(scaled(KEDA.replace("bull:jobs", "acme:jobs"), WORKER.replace(head, head + more)))
    )


# -- nodes that are taken back

POD = "    spec:\n      containers:"
SPOT = "      nodeSelector: {cloud.google.com/gke-spot: 'true'}\n"
AZURE = "      tolerations: [{key: kubernetes.azure.com/scalesetpriority, operator: Equal, value: spot}]\n"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [%s]}]}"
SPOT_ONLY = "{key: karpenter.sh/capacity-type, operator: In, values: [spot]}"
KARPENTER = f"      affinity: {{nodeAffinity: {{{REQUIRED % SPOT_ONLY}}}}}\n"
EITHER = KARPENTER.replace("[spot]", "[spot, on-demand]")


def on(lines: str) -> dict[str, str]:
    return {"k.yaml": WORKER.replace(POD, f"    spec:\n{lines}      containers:")}


@pytest.mark.parametrize(
    ("lines", "where", "notice"),
    [
        (SPOT, "It runs on spot nodes of GKE", 15),
        (AZURE, "It may run on spot nodes of AKS", 30),
        (KARPENTER, "It runs on spot nodes of AWS", None),
        (EITHER, "It may run on spot nodes of AWS", None),
        ("      nodeSelector: {cloud.google.com/gke-nodepool: batch}\n", "", None),
    ],
    ids=["gke", "aks", "karpenter", "either", "other nodes"],
)
def test_a_notice_that_is_shorter_than_the_shutdown(lines: str, where: str, notice: int | None) -> None:
    """As proposed, preStop 5 and shutdown 45 are 50 s: within the two minutes of AWS."""
    found = judged(on(lines))
    assert ("spot-notice" in kinds(found)) is (notice is not None)
    if notice:
        said = finding(found, "spot-notice")
        assert said.says.startswith(where)
        assert said.arithmetic == f"preStop 5 + shutdown 45 = 50 s, notice {notice} s"


@pytest.mark.parametrize(("lines", "where"), [(KARPENTER, "It runs"), (EITHER, "It may run")])
def test_two_minutes_are_too_short_for_a_longer_shutdown(lines: str, where: str) -> None:
    files = {"k.yaml": on(lines)["k.yaml"].replace('value: "30"', 'value: "600"')}
    assert finding(judged(files), "spot-notice").says.startswith(f"{where} on spot nodes of AWS")


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        (KARPENTER, True),
        (KARPENTER.replace("operator: In", "operator: NotIn"), False),
        (KARPENTER.replace("[spot]", "[on-demand]"), False),
        (AZURE, True),
        (AZURE.replace("value: spot", "value: regular"), False),
    ],
)
def test_what_is_excluded_is_not_where_it_runs(lines: str, is_told: bool) -> None:
    files = {"k.yaml": on(lines)["k.yaml"].replace('value: "30"', 'value: "600"')}
    assert ("spot-notice" in kinds(judged(files))) is is_told


# -- connections to PostgreSQL

COMPOSE = """services:
  main: {image: "n8nio/n8n:2.41.1", environment: &env {DB_POSTGRESDB_POOL_SIZE: 10}}
  webhook: {image: "n8nio/n8n:2.41.1", command: webhook, environment: *env, scale: 2}
  worker: {image: "n8nio/n8n:2.41.1", command: worker, environment: *env, deploy: {replicas: 8}}
"""


def test_fixed_replicas_mains_and_webhook_processors_count() -> None:
    said = finding(judged({"c.yaml": COMPOSE}), "many-connections")
    assert said.arithmetic == "main 1 × 10 + webhook 2 × 10 + worker 8 × 10 = 110"
    assert said.says == "11 n8n processes open up to 110 connections; PostgreSQL leaves 97 to applications."
    assert said.where == "worker (c.yaml:4)"


@pytest.mark.parametrize(
    "more",
    [
        "  db: {image: postgres:17, command: postgres -c max_connections=200}\n",
        "  db: {image: postgres:17, command: [postgres, -c, max_connections=120]}\n",
        "  pool: {image: edoburu/pgbouncer:1.23}\n",
    ],
    ids=["line", "list", "pooler"],
)
def test_a_larger_limit_or_a_pooler_among_the_files_is_enough(more: str) -> None:
    assert "many-connections" not in kinds(judged({"c.yaml": COMPOSE + more}))


def test_a_limit_that_is_too_small_is_named() -> None:
    more = "  db: {image: postgres:17, command: postgres -c max_connections=50}\n"
    assert (
        "PostgreSQL leaves 47 to applications" in finding(judged({"c.yaml": COMPOSE + more}), "many-connections").says
    )


def test_without_a_pool_each_process_has_n8ns_two() -> None:
    text = COMPOSE.replace("DB_POSTGRESDB_POOL_SIZE: 10", "A: b").replace("replicas: 8", "replicas: 60")
    said = finding(judged({"c.yaml": text}), "many-connections")
    assert said.arithmetic == "main 1 × 2 + webhook 2 × 2 + worker 60 × 2 = 126"


def test_a_pool_that_is_not_known_is_not_counted_as_none() -> None:
    text = COMPOSE.replace("environment: *env, scale: 2", 'environment: {DB_POSTGRESDB_POOL_SIZE: "$POOL"}, scale: 2')
    text = text.replace("replicas: 8", "replicas: 20")
    assert "at least 210 connections" in finding(judged({"c.yaml": text}), "many-connections").says


def test_kubernetes_counts_fixed_replicas_too() -> None:
    head = "          env:\n"
    pool = "            - {name: DB_POSTGRESDB_POOL_SIZE, value: '40'}\n"
    said = finding(judged({"k.yaml": WORKER.replace(head, head + pool)}), "many-connections")
    assert said.arithmetic == "3 × 40 = 120"
