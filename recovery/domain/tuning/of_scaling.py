"""Findings about the number of workers: autoscalers, spot nodes, database connections of all processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recovery.domain.tuning import variables
from recovery.domain.tuning.findings import Edit, Finding, Severity, added, plain, spoken, written
from recovery.domain.tuning.setups import Setup, is_n8n, number
from recovery.domain.tuning.timing import Timing
from recovery.domain.tuning.workloads import Kind, PacePolicy, Place, Scaler, Scene, Workload

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


def of_scaling(setup: Setup, scaler: Scaler) -> Iterator[Finding]:
    """Finds autoscalers that interrupt jobs. Each step down stops a worker, whatever it is doing."""
    where = f"{scaler.name} ({scaler.file}:{scaler.line})"
    yield from _hasty(setup, scaler, where)
    if scaler.is_keda:
        yield from _zero(setup, scaler, where)
        yield from _wrong_keys(setup, scaler, where)


def of_spot_nodes(setup: Setup, better: Timing) -> Iterator[Finding]:
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
        f"It {runs} on spot nodes of {spot.cloud}: when one is taken back its pods have {spoken(spot.notice)}, "
        f"whatever terminationGracePeriodSeconds says. A job that runs longer is killed{rest}."
    )
    arithmetic = (
        f"preStop {plain(better.pre_stop)} + shutdown {plain(better.shutdown)} = {plain(needed)} s, "
        f"notice {plain(spot.notice)} s"
    )
    remedy = "Run workers of longer jobs on nodes that are not spot."
    if spot.cloud == "GKE":
        remedy += " GKE 1.35 and later can give a node pool up to 120 s."
    yield Finding("spot-notice", Severity.MEDIUM, setup.where, says, arithmetic, remedy)


def of_connections(scene: Scene) -> Iterator[Finding]:
    """Finds more connections than PostgreSQL takes: mains, workers and webhook processors open a pool each."""
    counted = [one for one in scene.workloads if one.kind is not Kind.ENVIRONMENT and is_n8n(one) and _is_postgres(one)]
    if not counted or any(_image(one).startswith(_POOLERS) for one in scene.workloads):
        return
    sums = [(one, _most(scene, one), pool) for one in counted if (pool := _pool(one)) is not None]
    total, processes = sum(count * pool for _, count, pool in sums), sum(count for _, count, _ in sums)
    limit = _limit(scene)
    if total <= limit:
        return
    least = "at least " if len(sums) < len(counted) else ""  # the pool size of one is not in the files
    says = (
        f"{processes} n8n process{'es' * (processes != 1)} open up to {least}{plain(total)} connections; PostgreSQL "
        f"leaves {limit} to applications."
    )
    names = [f"{one.name} " if len(sums) > 1 else "" for one, _, _ in sums]
    parts = [f"{name}{count} × {plain(pool)}" for name, (_, count, pool) in zip(names, sums, strict=True)]
    arithmetic = f"{' + '.join(parts)} = {plain(total)}"
    remedy = "Raise max_connections, put a pooler before it, or take a smaller pool."
    largest, _, _ = max(sums, key=lambda one: one[1] * one[2])
    yield Finding("many-connections", Severity.LOW, largest.where, says, arithmetic, remedy)


def _hasty(setup: Setup, scaler: Scaler, where: str) -> Iterator[Finding]:
    shutdown = setup.timing.shutdown
    window = _CALM if scaler.window is None else scaler.window
    fast = _fast(scaler)
    if scaler.select == "Disabled" or (window >= _CALM and scaler.policies and not fast):
        return
    longer = "long" if shutdown is None else f"longer than {spoken(shutdown)}"
    rest = f"A job that runs {longer} is killed."
    says = f"It scales workers down after {spoken(window)} without load{_pace(scaler, fast)}. {rest}"
    remedy = f"scaleDown: wait {_CALM} s, then at most one pod in {_PACE} s."
    yield Finding("hasty-scale-down", Severity.MEDIUM, where, says, remedy=remedy, edits=_calm(scaler, fast))


def _fast(scaler: Scaler) -> list[PacePolicy]:
    """Returns the policies that remove too many pods at a time: with Max the fastest counts, with Min the slowest."""
    found = [policy for policy in scaler.policies if not _is_calm(policy)]
    return found if scaler.select != "Min" or len(found) == len(scaler.policies) else []


def _is_calm(policy: PacePolicy) -> bool:
    if policy.value is None or not policy.period:
        return True  # Kubernetes refuses it
    in_a_minute = policy.value * _MINUTE / policy.period
    return in_a_minute <= (_CALM_PERCENT if policy.kind == "Percent" else _CALM_PODS)


def _pace(scaler: Scaler, fast: list[PacePolicy]) -> str:
    if not scaler.policies:
        return ", all of them within 15 s"
    if not fast:
        return ""
    worst = fast[0]
    value, period = plain(worst.value or 0), spoken(worst.period or 0)
    return f", {value}{'%' if worst.kind == 'Percent' else ' pods'} of them within {period}"


def _calm(scaler: Scaler, fast: list[PacePolicy]) -> tuple[Edit, ...]:
    found: list[Edit] = []
    if scaler.window is not None and scaler.window < _CALM:
        found += written(scaler.window_place, str(_CALM))
    for policy in fast:
        found += _paced(policy.kind_place, policy.value_place, policy.period_place)
    return (*found, *added(scaler.room, ("stabilizationWindowSeconds", str(_CALM))))


def _paced(kind: Place | None, value: Place | None, period: Place | None) -> tuple[Edit, ...]:
    """Returns the edits to one pod a minute; nothing where a part of the policy cannot be edited."""
    if kind is None or value is None or period is None:
        return ()
    return (*written(kind, "Pods"), *written(value, "1"), *written(period, str(_PACE)))


def _zero(setup: Setup, scaler: Scaler, where: str) -> Iterator[Finding]:
    if scaler.least != 0:
        return
    after = "" if scaler.cooldown is None else f" {spoken(scaler.cooldown)} after its triggers go quiet"
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
    edits = written(scaler.least_place, "1") or added(scaler.least_room, ("minReplicaCount", "1"))
    remedy = "minReplicaCount: 1."
    if running and setup.version:
        remedy += f" Or a second trigger with listName: {_prefix(setup) or 'bull'}:jobs:active."
    yield Finding("scales-to-zero", Severity.MEDIUM, where, says, "", remedy, edits)


def _wrong_keys(setup: Setup, scaler: Scaler, where: str) -> Iterator[Finding]:
    prefix = _prefix(setup)
    if setup.version is None or prefix is None:
        return
    known = re.compile(rf"(?:{re.escape(prefix)}|\{{{re.escape(prefix)}\}}):jobs(?:-[\w-]+)?:(?:wait|active)")
    for key in scaler.keys:
        if known.fullmatch(key.name):
            continue
        severity = Severity.HIGH if scaler.least == 0 else Severity.MEDIUM
        says = "KEDA watches a list that n8n does not write: no worker is started for jobs that wait."
        edits = written(key.place, f"{prefix}:jobs:wait")
        yield Finding("wrong-key", severity, where, says, "", f"listName: {prefix}:jobs:wait.", edits)


def _prefix(setup: Setup) -> str | None:
    """Returns n8n's key prefix; None if its value is not in the files."""
    setting = setup.workload.settings.get(variables.PREFIX) if setup.workload else None
    if setting is None or not setting.value:
        return None if setting and setting.is_hidden else "bull"
    return setting.value.strip("{}") if re.fullmatch(r"[\w{}.-]{1,60}", setting.value) else None


def _most(scene: Scene, workload: Workload) -> int:
    scaled = next((one.most for one in scene.scalers if one.scales(workload)), None)
    return scaled or (1 if workload.replicas is None else workload.replicas)


def _pool(workload: Workload) -> float | None:
    """Returns the size of the connection pool; None if its value is not in the files."""
    setting = workload.settings.get(variables.POOL)
    if setting is None or not setting.value:
        return None if setting and setting.is_hidden else float(variables.POOL_SIZE)
    return number(setting.value) or float(variables.POOL_SIZE)


def _is_postgres(workload: Workload) -> bool:
    setting = workload.settings.get(variables.DATABASE)
    return setting is None or setting.value in _POSTGRES


def _limit(scene: Scene) -> int:
    """Returns how many connections PostgreSQL leaves to applications, as the files say, or by default."""
    said = (" ".join(one.words) for one in scene.workloads if _image(one).startswith(("postgres", "pgvector")))
    found = next((match for words in said if (match := _MAX_CONNECTIONS.search(words))), None)
    return (int(found[1]) if found else _POSTGRES_MAX) - _POSTGRES_KEPT


def _image(workload: Workload) -> str:
    return workload.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
