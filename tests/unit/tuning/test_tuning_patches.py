"""A patch makes what was found go away, keeps everything else as it was, and shows no secret."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recovery.domain.tuning.findings import TextEdit
from recovery.domain.tuning.patches import patch
from tests.support.tuning import COMPOSE, KUBERNETES, TOOLS, finding, judged, kinds, patched, patched_by

LISTED = """services:
  worker:
    image: n8nio/n8n:1.123.5
    command: worker
    environment:
      - "QUEUE_WORKER_LOCK_DURATION=60000"
      - QUEUE_WORKER_TIMEOUT=30 # old
      - N8N_QUEUE_BULL_GRACEFULSHUTDOWNTIMEOUT=300
"""
ENV = """# of the workers
export QUEUE_WORKER_LOCK_DURATION="60000"   # a minute
QUEUE_WORKER_LOCK_RENEW_TIME=10000
DB_POSTGRESDB_PASSWORD='hunter2'
"""
BARE = "services:\n  worker:\n    image: n8nio/n8n:1.123.5\n    command: worker"
HELM = "---\n# Source: n8n/templates/deployment-worker.yaml\n" + KUBERNETES
PROBE = KUBERNETES[KUBERNETES.index("          readinessProbe") : KUBERNETES.index("---")]
IN_BRACKETS = re.sub(r"- name: (\S+)\n +value: (\S+)", r"- {name: \1, value: \2}", KUBERNETES).replace(
    "- {name: DB", '- { "name": "QUEUE_WORKER_CONCURRENCY", "value": "10" } # not read\n            - {name: DB'
)
_OURS = '{name: QUEUE_WORKER_LOCK_DURATION, value: "60000"}, {name: N8N_GRACEFUL_SHUTDOWN_TIMEOUT, value: "30"}'
ALL_IN_BRACKETS = re.sub(r"env:\n(?: +- name: \S+\n +value: .*\n)+", f"env: [{_OURS}]\n", KUBERNETES)
MAP = '{QUEUE_WORKER_LOCK_DURATION: "60000", QUEUE_WORKER_LOCK_RENEW_TIME: 50000}'
LIST = '["QUEUE_WORKER_LOCK_DURATION=60000", QUEUE_WORKER_LOCK_RENEW_TIME=50000]'
SHARED = """x-n8n: &n8n
  image: n8nio/n8n:2.41.1
  environment: &env
    EXECUTIONS_MODE: queue
services:
  main:
    <<: *n8n
  webhook:
    <<: *n8n
    command: webhook
    stop_grace_period: 40s
  other:
    image: n8nio/n8n:2.41.1
  worker:
    <<: *n8n
    command: worker
"""
# As n8n's own example has it.
HOSTING = """x-shared: &shared
  restart: always
  image: docker.n8n.io/n8nio/n8n:${N8N_VERSION}
  environment:
    - DB_TYPE=postgresdb
    - DB_POSTGRESDB_PASSWORD=${POSTGRES_NON_ROOT_PASSWORD}
    - QUEUE_HEALTH_CHECK_ACTIVE=true
    - OFFLOAD_MANUAL_EXECUTIONS_TO_WORKERS=true
  volumes:
    - n8n_storage:/home/node/.n8n

services:
  n8n:
    <<: *shared
    ports:
      - 5678:5678

  n8n-worker:
    <<: *shared
    command: worker
    depends_on:
      - n8n
"""
KEDA = """---
apiVersion: keda.sh/v1alpha1
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
        address: "redis:6379"
        listName: "bull:n8n:wait"
        listLength: "5"
"""
CASES = {
    "kubernetes": {"k8s.yaml": KUBERNETES},
    "kubernetes, variables last": {"k8s.yaml": KUBERNETES.replace(PROBE, "")},
    "compose": {"compose.yaml": COMPOSE, ".env": "N8N_GRACEFUL_SHUTDOWN_TIMEOUT=30\n"},
    "list": {"compose.yaml": LISTED},
    "env": {"worker.env": ENV},
    "kubernetes, each variable in brackets": {"k8s.yaml": IN_BRACKETS},
    "kubernetes, all variables in brackets": {"k8s.yaml": ALL_IN_BRACKETS},
    "compose, a map in brackets": {"compose.yaml": f"{BARE}\n    environment: {MAP}\n"},
    "compose, a list in brackets": {"compose.yaml": f"{BARE}\n    environment: {LIST}\n"},
    "bare, without a last line break": {"compose.yaml": BARE},
    "helm": {"rendered.yaml": HELM},
    "compose, one environment for all": {"compose.yaml": SHARED},
    "compose of n8n's own": {"docker-compose.yml": HOSTING},
    "keda": {"k8s.yaml": KUBERNETES.partition("---\n")[0] + KEDA},
    "windows": {"k8s.yaml": KUBERNETES.replace("\n", "\r\n")},
}
EACH = pytest.mark.parametrize("files", CASES.values(), ids=CASES.keys())
BY_HAND = {"no-health-check", "fails-at-once", "code-nodes-cut"}  # what no patch of ours can know


@EACH
def test_what_was_patched_is_found_no_more(files: dict[str, str]) -> None:
    first = judged(files)
    assert kinds(first) - BY_HAND, "there is something to find"
    second = judged(patched(first, files))
    assert kinds(second) <= BY_HAND
    assert not second.patches


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("tool", TOOLS)
@EACH
def test_patch_and_git_come_to_the_same(files: dict[str, str], tool: str, tmp_path: Path) -> None:
    found = judged(files)
    assert not any(patch.withheld for patch in found.patches)
    if tool == "git apply" and not all(patch.has_context for patch in found.patches):
        with pytest.raises(AssertionError, match="patch does not apply"):  # as it is told
            patched_by(tool, found, files, tmp_path)
        return
    assert patched_by(tool, found, files, tmp_path) == patched(found, files)


def test_git_wants_more_only_where_a_secret_stands_right_behind_a_change() -> None:
    bare = [name for name, files in CASES.items() for patch in judged(files).patches if not patch.has_context]
    assert bare == ["compose", "env", "kubernetes, each variable in brackets"]


@pytest.mark.usefixtures("processes")
@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_name_with_spaces_and_an_end_without_a_line_break_are_taken(tool: str, end: str, tmp_path: Path) -> None:
    ending = "\r\n" if end == "\r\n" else "\n"
    lines = ("QUEUE_WORKER_TIMEOUT=30", "QUEUE_WORKER_LOCK_DURATION=60000", "QUEUE_WORKER_CONCURRENCY=5")
    files = {"my worker.env": ending.join(lines) + end}
    found = judged(files)
    assert patched_by(tool, found, files, tmp_path) == patched(found, files)
    assert "CONCURRENCY" not in patched(found, files)["my worker.env"]


@EACH
def test_a_patch_touches_nothing_else(files: dict[str, str]) -> None:
    for made in judged(files).patches:
        kept = [line[1:] for line in made.diff.splitlines() if line.startswith("-") and not line.startswith("---")]
        after = made.after.split("\n")
        lost = [line for line in made.before.split("\n") if line not in after and line.rstrip("\r") not in kept]
        assert [line for line in lost if line.strip()] == []


def test_the_kubernetes_patch_is_the_published_remedy() -> None:
    files = {"k8s.yaml": KUBERNETES}
    after = judged(patched(judged(files), files)).outlooks[0].setup.timing
    assert (after.lock, after.renew, after.stalled_interval) == (30, 5, 15)
    assert (after.shutdown, after.pre_stop, after.grace) == (45, 5, 65)


def test_comments_and_quotes_stay() -> None:
    after = patched(judged({"worker.env": ENV}), {"worker.env": ENV})["worker.env"]
    assert 'export QUEUE_WORKER_LOCK_DURATION="30000"   # a minute' in after
    assert after.startswith("# of the workers\n")


@EACH
def test_no_secret_is_shown(files: dict[str, str]) -> None:
    found = judged(files)
    assert "hunter" not in repr([(finding.says, finding.remedy, finding.arithmetic) for finding in found.findings])
    assert not [made for made in found.patches if "hunter" in made.diff]


@pytest.mark.parametrize(
    "line",
    [
        "QUEUE_WORKER_TIMEOUT=60 # and the password is hunter2",
        "QUEUE_WORKER_TIMEOUT=60 # and the password is hunter",
        'environment: {QUEUE_WORKER_TIMEOUT: "60", DB_PASSWORD: hunter2}',
        "environment: {QUEUE_WORKER_TIMEOUT: 60, PIN: 4711}",
        "environment: [QUEUE_WORKER_TIMEOUT=60, PIN=4711]",
        "env: [{name: QUEUE_WORKER_TIMEOUT, value: '60'}, {name: PIN, value: '4711'}]",
        "- {name: QUEUE_WORKER_TIMEOUT, value: hunter2}",
        "QUEUE_WORKER_TIMEOUT=60 DB=hunter2",
        "QUEUE_WORKER_TIMEOUT=hunter2",
    ],
)
def test_a_line_that_may_hold_a_secret_is_withheld(line: str) -> None:
    made = patch("f", f"{line}\n", [TextEdit("f", 1, 0, 2, 0, "")])
    assert made
    assert made.diff == ""
    assert made.withheld == 1
    assert made.after == ""


def test_a_secret_beside_a_change_is_no_context() -> None:
    pairs = (("API_TOKEN", 4711), ("QUEUE_WORKER_TIMEOUT", 60), ("PIN", 4712))
    text = "".join(f"- name: {name}\n  value: '{value}'\n" for name, value in pairs)
    made = patch("f", text, [TextEdit("f", 4, 10, 4, 12, "45")])
    assert made
    assert "4711" not in made.diff
    assert "4712" not in made.diff
    assert "-  value: '60'\n+  value: '45'\n" in made.diff


@pytest.mark.parametrize(
    "line", ["QUEUE_BULL_REDIS_PASSWORD=hunter", "QUEUE_BULL_REDIS_PASSWORD: hunter", "image: hunter2 # x"]
)
def test_a_line_behind_a_change_that_may_hold_a_secret_is_no_context(line: str) -> None:
    made = patch("f", f"QUEUE_WORKER_TIMEOUT=60\n{line}\n", [TextEdit("f", 1, 21, 1, 23, "45")])
    assert made
    assert not made.has_context
    assert "hunter" not in made.diff


def test_the_value_of_a_known_variable_is_context_unless_it_is_a_secret() -> None:
    text = "- name: QUEUE_WORKER_TIMEOUT\n  value: '60'\n- name: QUEUE_BULL_REDIS_{0}\n  value: {1}\n"
    shown = patch("f", text.format("HOST", "redis"), [TextEdit("f", 2, 10, 2, 12, "45")])
    hidden = patch("f", text.format("PASSWORD", "hunter"), [TextEdit("f", 2, 10, 2, 12, "45")])
    assert shown
    assert hidden
    assert "   value: redis\n" in shown.diff
    assert "hunter" not in hidden.diff


def test_a_key_of_a_cloud_in_a_harmless_place_is_no_context() -> None:
    made = patch("f", "QUEUE_WORKER_TIMEOUT=60\nhostname: AKIAIOSFODNN7EXAMPLE\n", [TextEdit("f", 1, 21, 1, 23, "45")])
    assert made
    assert "AKIA" not in made.diff


def test_what_was_shared_by_an_anchor_is_changed_once() -> None:
    text = """x-env: &env
  QUEUE_WORKER_LOCK_DURATION: 60000
services:
  a-worker: {image: "n8nio/n8n:1.123.5", command: worker, environment: *env}
  b-worker: {image: "n8nio/n8n:1.123.5", command: worker, environment: *env}
"""
    found = judged({"c.yaml": text})
    (made,) = found.patches
    assert made.diff.count("+  QUEUE_WORKER_LOCK_DURATION") == 1
    assert "+  QUEUE_WORKER_STALLED_INTERVAL" in made.diff


@pytest.mark.parametrize("given", ["", "    N8N_GRACEFUL_SHUTDOWN_TIMEOUT: 30\n"], ids=["added", "changed"])
def test_who_shares_the_shutdown_timeout_gets_as_long_a_grace_period(given: str) -> None:
    files = {"c.yaml": SHARED.replace("queue\n", f"queue\n{given}")}
    found = judged(files)
    assert {one.where.split()[0] for one in found.findings if one.kind == "shared-variables"} == {"main", "webhook"}
    after = patched(found, files)["c.yaml"]
    assert after.count("N8N_GRACEFUL_SHUTDOWN_TIMEOUT") == 1
    assert "  main:\n    stop_grace_period: 60s\n" in after
    assert "    command: webhook\n    stop_grace_period: 60s\n" in after
    assert "  other:\n    image" in after
    assert all(patch.has_context for patch in found.patches)
    assert "shared-variables" not in kinds(judged({"c.yaml": after}))


def test_a_config_map_is_shared_too() -> None:
    pod = """apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  template:
    spec:
      containers:
        - name: n
          image: n8nio/n8n:2.41.1
          args: [NAME]
          envFrom: [{configMapRef: {name: c}}]
"""
    config = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  N8N_GRACEFUL_SHUTDOWN_TIMEOUT: '30'\n"
    text = "---\n".join((pod.replace("NAME", "main"), pod.replace("NAME", "worker"), config))
    found = judged({"k.yaml": text})
    assert finding(found, "shared-variables").where == "main (k.yaml:8)"
    assert finding(found, "shared-variables").remedy == "terminationGracePeriodSeconds: 60."
    assert patched(found, {"k.yaml": text})["k.yaml"].count("terminationGracePeriodSeconds") == 2


def test_a_value_of_its_own_is_not_shared() -> None:
    """Both have the variable, on two lines."""
    own = "    environment: {N8N_GRACEFUL_SHUTDOWN_TIMEOUT: 30}\n"
    text = SHARED.replace("    command: worker\n", f"    command: worker\n{own}").replace(
        "  main:\n    <<: *n8n\n", f"  main:\n    <<: *n8n\n{own}"
    )
    assert "shared-variables" not in kinds(judged({"c.yaml": text}))


def test_own_variables_leave_the_others_as_they_are() -> None:
    own = "    command: worker\n    environment:\n      <<: *env\n      N8N_GRACEFUL_SHUTDOWN_TIMEOUT: 30\n"
    found = judged({"c.yaml": SHARED.replace("    command: worker\n", own)})
    assert "shared-variables" not in kinds(found)


def test_a_reference_is_changed_where_its_value_stands() -> None:
    files = {
        "compose.yaml": BARE + '\n    environment:\n      QUEUE_WORKER_LOCK_DURATION: "${LOCK:-60000}"\n'
        "      QUEUE_WORKER_STALLED_INTERVAL: ${SWEEP}\n",
        ".env": "SWEEP=30000\n",
    }
    after = patched(judged(files), files)
    assert "${LOCK:-30000}" in after["compose.yaml"]
    assert "${SWEEP}" in after["compose.yaml"]
    assert after[".env"] == "SWEEP=15000\n"


def test_a_manifest_in_brackets_gets_its_values_changed() -> None:
    text = re.sub(r"\s+", " ", _JSON)
    found = judged({"k8s.json": text})
    assert finding(found, "sigkill-race")
    after = judged({"k8s.json": found.patches[0].after}).outlooks[0].setup.timing
    assert (after.lock, after.grace) == (30, 60 + 5)


_JSON = """{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": {"template": {"spec":
{"terminationGracePeriodSeconds": 30, "containers": [{"name": "w", "image": "n8nio/n8n:1.123.5", "args": ["worker"],
"env": [{"name": "QUEUE_WORKER_LOCK_DURATION", "value": "60000"}]}]}}}}"""


def test_lines_that_patch_does_not_know_get_none() -> None:
    assert patch("f", "a\u2028b\n", [TextEdit("f", 1, 0, 1, 1, "c")]) is None


def test_of_overlapping_edits_the_first_counts() -> None:
    made = patch("f", "A=1\n", [TextEdit("f", 1, 2, 1, 3, "2"), TextEdit("f", 1, 0, 2, 0, "")])
    assert made
    assert made.after == "A=2\n"
