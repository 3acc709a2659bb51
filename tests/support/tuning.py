"""Files for tests of tuning: what is found in them, and what they are once their patch was applied."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from recovery.domain.tuning.findings import TuningFinding
from recovery.domain.tuning.report import TuningReport, report
from recovery.domain.tuning.worker_setup import TuningOptions
from recovery.tuning.parsers.deployment_files import parse_files

KUBERNETES = """# Workers of the shop. Ask ops before touching them.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: n8n-worker
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: worker
          image: docker.n8n.io/n8nio/n8n:1.123.5
          command: ["n8n", "worker"]   # ten at once
          args: ["--concurrency=10"]
          env:
            - name: DB_POSTGRESDB_PASSWORD
              value: hunter2
            - name: QUEUE_WORKER_LOCK_DURATION
              value: "60000"
            - name: QUEUE_WORKER_LOCK_RENEW_TIME
              value: "10000" # often
            - name: N8N_GRACEFUL_SHUTDOWN_TIMEOUT
              value: "30"
          readinessProbe:
            httpGet: {path: /healthz/readiness, port: 5678}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: n8n-worker}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: n8n-worker}
  minReplicas: 2
  maxReplicas: 10
"""
COMPOSE = """x-n8n: &n8n
  image: n8nio/n8n:2.4.0
  env_file: [.env]
  environment: &env
    EXECUTIONS_MODE: queue
    QUEUE_WORKER_MAX_STALLED_COUNT: 3
    QUEUE_WORKER_TIMEOUT: "60"  # longer than the longest
    QUEUE_BULL_REDIS_PASSWORD: hunter2
services:
  redis:
    image: redis:7
    command: redis-server --maxmemory 1gb --maxmemory-policy allkeys-lru
  main:
    <<: *n8n
  worker:
    <<: *n8n
    command: worker
    environment:
      <<: *env
      N8N_ENCRYPTION_KEY: hunter3
"""


def judged(files: Mapping[str, str | bytes], options: TuningOptions | None = None) -> TuningReport:
    given = ((name, text.encode() if isinstance(text, str) else text) for name, text in files.items())
    return report(parse_files(given), options or TuningOptions())


def kinds(found: TuningReport) -> set[str]:
    return {finding.kind for finding in found.findings}


def finding(found: TuningReport, kind: str) -> TuningFinding:
    """The one of this kind."""
    (one,) = (finding for finding in found.findings if finding.kind == kind)
    return one


def patched(found: TuningReport, files: Mapping[str, str]) -> dict[str, str]:
    """The texts as our own hands leave them."""
    return {**files, **{patch.file: patch.after for patch in found.patches}}


def patched_by(tool: str, found: TuningReport, files: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The same by a real tool, one of TOOLS, from what is shown."""
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    for patch in found.patches:
        if patch.diff:
            apply(patch.diff, folder, tool)
    return {name: (folder / name).read_bytes().decode() for name in files}


# As docs/tuning.md has them; --binary keeps patch from touching the line ends of Windows.
TOOLS = {
    "patch -p0": ("patch", "-p0", "--binary"),
    "patch -p1": ("patch", "-p1", "--binary"),
    "patch -p0 --posix": ("patch", "-p0", "--binary", "--posix", "-u"),
    "git apply": ("git", "apply"),
    "git apply --unidiff-zero": ("git", "apply", "--unidiff-zero"),
}


def apply(diff: str, folder: Path, tool: str = "patch -p0") -> None:
    """What a person does with it. Skips, with the reason, where the tool is not there."""
    command = TOOLS[tool]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed (Debian: apt install {command[0]})")
    ended = subprocess.run(command, cwd=folder, input=diff.encode(), check=False, capture_output=True)
    assert ended.returncode == 0, ended.stderr.decode() + diff
