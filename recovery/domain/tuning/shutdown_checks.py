"""Findings about an ordered stop: workers killed while they work, missing pauses, missing health checks."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.domain.tuning import n8n_variables
from recovery.domain.tuning.findings import Severity, TuningFinding, add_lines, number_text, replace_value, seconds_text
from recovery.domain.tuning.prediction import PredictedShutdown, predict
from recovery.domain.tuning.proposal import NARROW
from recovery.domain.tuning.proposal_edits import shutdown_name
from recovery.domain.tuning.timing import WorkerTiming
from recovery.domain.tuning.worker_setup import WorkerSetup
from recovery.domain.tuning.workloads import Workload, WorkloadKind, WorkloadSetting


def check_shutdown(setup: WorkerSetup, better: WorkerTiming) -> Iterator[TuningFinding]:
    workload, stop = setup.workload, predict(setup.timing).shutdown
    if stop:
        yield from _race(setup, stop, better)
    yield from _cut(setup, better)
    yield from _code_nodes(setup)
    if workload is None:
        return
    if workload.kind is WorkloadKind.KUBERNETES and workload.pre_stop == 0:
        yield _no_pause(setup)
    if workload.pre_stop is None:
        says = "How long the preStop command runs is unknown; 0 s is assumed."
        yield TuningFinding("unknown-pause", Severity.NOTE, setup.where, says)
    yield from _health(setup, workload)


def _race(setup: WorkerSetup, stop: PredictedShutdown, better: WorkerTiming) -> Iterator[TuningFinding]:
    timing = setup.timing
    if stop.margin >= NARROW:
        return
    arithmetic = (
        f"preStop {number_text(timing.pre_stop)} + shutdown {number_text(stop.done - stop.pre_stop)} = "
        f"{number_text(stop.done)} s, "
        f"grace period {number_text(stop.killed)} s"
    )
    remedy = _longer(setup.workload, better.grace or 0)
    if stop.races:
        says = (
            f"Grace period ≤ shutdown timeout: SIGKILL comes {_when(stop)} the worker stops waiting for its jobs, "
            "and running jobs are killed."
        )
        yield TuningFinding("sigkill-race", Severity.HIGH, setup.where, says, arithmetic, remedy)
    else:
        says = f"Only {seconds_text(stop.margin)} are left between the shutdown timeout and SIGKILL."
        yield TuningFinding("narrow-grace", Severity.MEDIUM, setup.where, says, arithmetic, remedy)


def _longer(workload: Workload | None, grace: float) -> str:
    """Returns the setting of a longer grace period, as Kubernetes or compose names it."""
    if workload and workload.kind is WorkloadKind.KUBERNETES:
        return f"terminationGracePeriodSeconds: {number_text(grace)}."
    if workload and workload.kind is WorkloadKind.COMPOSE:
        return f"stop_grace_period: {number_text(grace)}s."
    return f"A grace period of {seconds_text(grace)}."


def _when(stop: PredictedShutdown) -> str:
    return "when" if stop.margin == 0 else f"{seconds_text(-stop.margin)} before"


def _cut(setup: WorkerSetup, better: WorkerTiming) -> Iterator[TuningFinding]:
    """Finds a shutdown timeout below the recovery time: a worker that waits as long for its jobs loses nothing."""
    shutdown, wanted, said = setup.timing.shutdown, better.shutdown, predict(better).recovery
    if shutdown is None or wanted is None or said is None or wanted <= shutdown:
        return
    rest = "then waits for its recovery" if setup.timing.max_stalled else "is not run again"
    says = f"A job that runs longer than {seconds_text(shutdown)} is killed at each deployment, and {rest}."
    arithmetic = f"shutdown {number_text(shutdown)} s < recovery {number_text(said.about)} s"
    name = (
        f"{shutdown_name(setup)} = {number_text(wanted)}"
        if setup.version
        else f"Wait {seconds_text(wanted)} for running jobs"
    )
    remedy = f"{name}: as long as the recovery takes."
    yield TuningFinding("short-shutdown", Severity.LOW, setup.where, says, arithmetic, remedy)


def _no_pause(setup: WorkerSetup) -> TuningFinding:
    says = "There is no preStop pause: SIGTERM comes before probes, autoscalers and clients notice."
    return TuningFinding("no-pre-stop", Severity.LOW, setup.where, says, remedy="preStop: sleep 5.")


def _health(setup: WorkerSetup, workload: Workload) -> Iterator[TuningFinding]:
    if workload.is_probed is False:
        says = "It has no health check: a worker that hangs keeps its locks and takes no job."
        yield TuningFinding("no-health-check", Severity.LOW, setup.where, says, remedy=_probes(setup, workload))
    elif workload.is_probed and setup.version and workload.kind is WorkloadKind.KUBERNETES:
        yield from _closed(setup, workload)


def _probes(setup: WorkerSetup, workload: Workload) -> str:
    """Returns the remedy for a missing health check, without what is configured already."""
    if not setup.version:
        return "A readiness and a liveness probe."
    setting = workload.settings.get(n8n_variables.HEALTH)
    first = "" if setting and _is_true(setting) else f"{n8n_variables.HEALTH}=true, and "
    if workload.kind is WorkloadKind.KUBERNETES:
        return f"{first or 'Write '}probes on /healthz and /healthz/readiness, port 5678."
    return f"{first or 'Write '}a healthcheck that asks http://localhost:5678/healthz."


def _closed(setup: WorkerSetup, workload: Workload) -> Iterator[TuningFinding]:
    setting = workload.settings.get(n8n_variables.HEALTH)
    if setting and _is_true(setting):
        return
    remedy = f"{n8n_variables.HEALTH}=true"
    if (setting and setting.is_hidden) or (setting is None and workload.missing):
        source = "its value is not readable here" if setting else f"{' and '.join(workload.missing)} was not given"
        says = (
            f"It has probes, and whether its health endpoint is enabled is unknown: {source}. Without {remedy} "
            "Kubernetes restarts a healthy worker."
        )
        yield TuningFinding(
            "unknown-health-endpoint", Severity.LOW, setup.where, says, "", f"Check that it has {remedy}."
        )
        return
    says = "It has probes but no health endpoint is enabled: Kubernetes restarts a healthy worker."
    edits = (
        replace_value(setting.place, "true")
        if setting
        else add_lines(workload.variables, (n8n_variables.HEALTH, "true"))
    )
    yield TuningFinding("closed-health-check", Severity.HIGH, setup.where, says, "", remedy, edits)


def _is_true(setting: WorkloadSetting) -> bool:
    return setting.value.lower() in ("true", "1")


def _code_nodes(setup: WorkerSetup) -> Iterator[TuningFinding]:
    """Says that this n8n gives its Code nodes less time than the rest of a workflow."""
    shutdown = setup.timing.shutdown
    if shutdown is None or setup.version is None or setup.version < n8n_variables.CUTS_CODE:
        return
    left = shutdown * n8n_variables.CODE_SHARE
    says = f"At a stop this n8n aborts Code nodes that still run after {seconds_text(left)}, and their executions fail."
    arithmetic = f"{n8n_variables.CODE_SHARE:g} × shutdown {number_text(shutdown)} = {number_text(left)} s"
    yield TuningFinding("code-nodes-cut", Severity.NOTE, setup.where, says, arithmetic)
