"""Findings about the number of workers: autoscalers, spot nodes, database connections of all processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recovery.domain.tuning import n8n_variables
from recovery.domain.tuning.findings import (
    Severity,
    TextEdit,
    TuningFinding,
    add_lines,
    number_text,
    replace_value,
    seconds_text,
)
from recovery.domain.tuning.timing import WorkerTiming
from recovery.domain.tuning.worker_setup import WorkerSetup, is_n8n, number
from recovery.domain.tuning.workloads import (
    Autoscaler,
    DeploymentFiles,
    ScaleDownPolicy,
    TextSpan,
    Workload,
    WorkloadKind,
)

_CALM = 300  # seconds; the default of Kubernetes
_PACE = 60  # seconds in which at most one pod is taken away
_CALM_PODS, _CALM_PERCENT = 2, 25  # in a minute
_MINUTE = 60
_POSTGRES_MAX, _POSTGRES_KEPT = (
    100,
    3,
)  # connections that PostgreSQL has by default, and those it keeps for its superuser
_MAX_CONNECTIONS = re.compile(r"max_connections\s?=\s?(\d{1,6})")
_POOLERS = ("pgbouncer", "pgcat", "pgpool", "odyssey", "supavisor")
_POSTGRES = frozenset({"", "postgresdb"})


def check_scaler(setup: WorkerSetup, scaler: Autoscaler) -> Iterator[TuningFinding]:
    """Finds autoscalers that interrupt jobs. Each step down stops a worker, whatever it is doing."""
    where = f"{scaler.name} ({scaler.file}:{scaler.line})"
    yield from _hasty(setup, scaler, where)
    if scaler.is_keda:
        yield from _zero(setup, scaler, where)
        yield from _wrong_keys(setup, scaler, where)


def check_spot_nodes(setup: WorkerSetup, better: WorkerTiming) -> Iterator[TuningFinding]:
    """Finds spot nodes: one that is taken back leaves less time than the manifest says."""
    spot = setup.workload.spot if setup.workload else None
    if spot is None or better.shutdown is None:
        return
    needed = better.pre_stop + better.shutdown
    if needed <= spot.notice:
        return
    runs = "runs" if spot.is_certain else "may run"
    rest = "" if better.max_stalled else ", and not run again"
    says = (
        f"It {runs} on spot nodes of {spot.cloud}: when one is taken back its pods have {seconds_text(spot.notice)}, "
        f"whatever terminationGracePeriodSeconds says. A job that runs longer is killed{rest}."
    )
    arithmetic = (
        f"preStop {number_text(better.pre_stop)} + shutdown {number_text(better.shutdown)} = {number_text(needed)} s, "
        f"notice {number_text(spot.notice)} s"
    )
    remedy = "Run workers of longer jobs on nodes that are not spot."
    if spot.cloud == "GKE":
        remedy += " GKE 1.35 and later can give a node pool up to 120 s."
    yield TuningFinding("spot-notice", Severity.MEDIUM, setup.where, says, arithmetic, remedy)


def check_connections(deployment: DeploymentFiles) -> Iterator[TuningFinding]:
    """Finds more connections than PostgreSQL takes: mains, workers and webhook processors open a pool each."""
    counted = [
        one
        for one in deployment.workloads
        if one.kind is not WorkloadKind.ENVIRONMENT and is_n8n(one) and _is_postgres(one)
    ]
    if not counted or any(_image(one).startswith(_POOLERS) for one in deployment.workloads):
        return
    sums = [(one, _most(deployment, one), pool) for one in counted if (pool := _pool(one)) is not None]
    total, processes = sum(count * pool for _, count, pool in sums), sum(count for _, count, _ in sums)
    limit = _limit(deployment)
    if total <= limit:
        return
    least = "at least " if len(sums) < len(counted) else ""  # the pool size of one is not in the files
    says = (
        f"{processes} n8n process{'es' * (processes != 1)} open up to {least}{number_text(total)} connections; "
        "PostgreSQL "
        f"leaves {limit} to applications."
    )
    names = [f"{one.name} " if len(sums) > 1 else "" for one, _, _ in sums]
    parts = [f"{name}{count} × {number_text(pool)}" for name, (_, count, pool) in zip(names, sums, strict=True)]
    arithmetic = f"{' + '.join(parts)} = {number_text(total)}"
    remedy = "Raise max_connections, put a pooler before it, or take a smaller pool."
    largest, _, _ = max(sums, key=lambda one: one[1] * one[2])
    yield TuningFinding("many-connections", Severity.LOW, largest.where, says, arithmetic, remedy)


def _hasty(setup: WorkerSetup, scaler: Autoscaler, where: str) -> Iterator[TuningFinding]:
    shutdown = setup.timing.shutdown
    window = _CALM if scaler.window is None else scaler.window
    fast = _fast(scaler)
    if scaler.select == "Disabled" or (window >= _CALM and scaler.policies and not fast):
        return
    longer = "long" if shutdown is None else f"longer than {seconds_text(shutdown)}"
    rest = f"A job that runs {longer} is killed."
    says = f"It scales workers down after {seconds_text(window)} without load{_pace(scaler, fast)}. {rest}"
    remedy = f"scaleDown: wait {_CALM} s, then at most one pod in {_PACE} s."
    yield TuningFinding("hasty-scale-down", Severity.MEDIUM, where, says, remedy=remedy, edits=_calm(scaler, fast))


def _fast(scaler: Autoscaler) -> list[ScaleDownPolicy]:
    """Returns the policies that remove too many pods at a time: with Max the fastest counts, with Min the slowest."""
    found = [policy for policy in scaler.policies if not _is_calm(policy)]
    return found if scaler.select != "Min" or len(found) == len(scaler.policies) else []


def _is_calm(policy: ScaleDownPolicy) -> bool:
    if policy.value is None or not policy.period:
        return True  # Kubernetes refuses it
    in_a_minute = policy.value * _MINUTE / policy.period
    return in_a_minute <= (_CALM_PERCENT if policy.kind == "Percent" else _CALM_PODS)


def _pace(scaler: Autoscaler, fast: list[ScaleDownPolicy]) -> str:
    if not scaler.policies:
        return ", all of them within 15 s"
    if not fast:
        return ""
    worst = fast[0]
    value, period = number_text(worst.value or 0), seconds_text(worst.period or 0)
    return f", {value}{'%' if worst.kind == 'Percent' else ' pods'} of them within {period}"


def _calm(scaler: Autoscaler, fast: list[ScaleDownPolicy]) -> tuple[TextEdit, ...]:
    found: list[TextEdit] = []
    if scaler.window is not None and scaler.window < _CALM:
        found += replace_value(scaler.window_place, str(_CALM))
    for policy in fast:
        found += _paced(policy.kind_place, policy.value_place, policy.period_place)
    return (*found, *add_lines(scaler.room, ("stabilizationWindowSeconds", str(_CALM))))


def _paced(kind: TextSpan | None, value: TextSpan | None, period: TextSpan | None) -> tuple[TextEdit, ...]:
    """Returns the edits to one pod a minute; nothing where a part of the policy cannot be edited."""
    if kind is None or value is None or period is None:
        return ()
    return (*replace_value(kind, "Pods"), *replace_value(value, "1"), *replace_value(period, str(_PACE)))


def _zero(setup: WorkerSetup, scaler: Autoscaler, where: str) -> Iterator[TuningFinding]:
    if scaler.least != 0:
        return
    after = "" if scaler.cooldown is None else f" {seconds_text(scaler.cooldown)} after its triggers go quiet"
    counts = any(key.name.endswith(":active") for key in scaler.keys)
    running = (
        ""
        if counts or not scaler.keys
        else " Its triggers do not count jobs that run, so the last ones are interrupted."
    )
    says = (
        f"It scales to zero workers: the last one is stopped{after} (cooldownPeriod), whatever scaleDown "
        f"says.{running} Without a worker no stalled check runs: a lost job waits until a new job starts one."
    )
    edits = replace_value(scaler.least_place, "1") or add_lines(scaler.least_room, ("minReplicaCount", "1"))
    remedy = "minReplicaCount: 1."
    if running and setup.version:
        remedy += f" Or a second trigger with listName: {_prefix(setup) or 'bull'}:jobs:active."
    yield TuningFinding("scales-to-zero", Severity.MEDIUM, where, says, "", remedy, edits)


def _wrong_keys(setup: WorkerSetup, scaler: Autoscaler, where: str) -> Iterator[TuningFinding]:
    prefix = _prefix(setup)
    if setup.version is None or prefix is None:
        return
    known = re.compile(rf"(?:{re.escape(prefix)}|\{{{re.escape(prefix)}\}}):jobs(?:-[\w-]+)?:(?:wait|active)")
    for key in scaler.keys:
        if known.fullmatch(key.name):
            continue
        severity = Severity.HIGH if scaler.least == 0 else Severity.MEDIUM
        says = "KEDA watches a list that n8n does not write: no worker is started for jobs that wait."
        edits = replace_value(key.place, f"{prefix}:jobs:wait")
        yield TuningFinding("wrong-key", severity, where, says, "", f"listName: {prefix}:jobs:wait.", edits)


def _prefix(setup: WorkerSetup) -> str | None:
    """Returns n8n's key prefix; None if its value is not in the files."""
    setting = setup.workload.settings.get(n8n_variables.PREFIX) if setup.workload else None
    if setting is None or not setting.value:
        return None if setting and setting.is_hidden else "bull"
    return setting.value.strip("{}") if re.fullmatch(r"[\w{}.-]{1,60}", setting.value) else None


def _most(deployment: DeploymentFiles, workload: Workload) -> int:
    scaled = next((one.most for one in deployment.scalers if one.scales(workload)), None)
    return scaled or (1 if workload.replicas is None else workload.replicas)


def _pool(workload: Workload) -> float | None:
    """Returns the size of the connection pool; None if its value is not in the files."""
    setting = workload.settings.get(n8n_variables.POOL)
    if setting is None or not setting.value:
        return None if setting and setting.is_hidden else float(n8n_variables.POOL_SIZE)
    return number(setting.value) or float(n8n_variables.POOL_SIZE)


def _is_postgres(workload: Workload) -> bool:
    setting = workload.settings.get(n8n_variables.DATABASE)
    return setting is None or setting.value in _POSTGRES


def _limit(deployment: DeploymentFiles) -> int:
    """Returns how many connections PostgreSQL leaves to applications, as the files say, or by default."""
    said = (" ".join(one.words) for one in deployment.workloads if _image(one).startswith(("postgres", "pgvector")))
    found = next((match for words in said if (match := _MAX_CONNECTIONS.search(words))), None)
    return (int(found[1]) if found else _POSTGRES_MAX) - _POSTGRES_KEPT


def _image(workload: Workload) -> str:
    return workload.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
