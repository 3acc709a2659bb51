"""Findings about an ordered stop: workers killed while they work, missing pauses, missing health checks."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.domain.tuning import variables
from recovery.domain.tuning.findings import Finding, Severity, added, plain, spoken, written
from recovery.domain.tuning.plan import shutdown_name
from recovery.domain.tuning.prediction import Shutdown, predict
from recovery.domain.tuning.proposal import NARROW
from recovery.domain.tuning.setups import Setup
from recovery.domain.tuning.timing import Timing
from recovery.domain.tuning.workloads import Kind, Setting, Workload


def of_stopping(setup: Setup, better: Timing) -> Iterator[Finding]:
    workload, stop = setup.workload, predict(setup.timing).shutdown
    if stop:
        yield from _race(setup, stop, better)
    yield from _cut(setup, better)
    yield from _code_nodes(setup)
    if workload is None:
        return
    if workload.kind is Kind.KUBERNETES and workload.pre_stop == 0:
        yield _no_pause(setup)
    if workload.pre_stop is None:
        says = "How long the preStop command runs is unknown; 0 s is assumed."
        yield Finding("unknown-pause", Severity.NOTE, setup.where, says)
    yield from _health(setup, workload)


def _race(setup: Setup, stop: Shutdown, better: Timing) -> Iterator[Finding]:
    timing = setup.timing
    if stop.margin >= NARROW:
        return
    arithmetic = (
        f"preStop {plain(timing.pre_stop)} + shutdown {plain(stop.done - stop.pre_stop)} = {plain(stop.done)} s, "
        f"grace period {plain(stop.killed)} s"
    )
    remedy = _longer(setup.workload, better.grace or 0)
    if stop.races:
        says = (
            f"Grace period ≤ shutdown timeout: SIGKILL comes {_when(stop)} the worker stops waiting for its jobs, "
            "and running jobs are killed."
        )
        yield Finding("sigkill-race", Severity.HIGH, setup.where, says, arithmetic, remedy)
    else:
        says = f"Only {spoken(stop.margin)} are left between the shutdown timeout and SIGKILL."
        yield Finding("narrow-grace", Severity.MEDIUM, setup.where, says, arithmetic, remedy)


def _longer(workload: Workload | None, grace: float) -> str:
    """Returns the setting of a longer grace period, as Kubernetes or compose names it."""
    if workload and workload.kind is Kind.KUBERNETES:
        return f"terminationGracePeriodSeconds: {plain(grace)}."
    if workload and workload.kind is Kind.COMPOSE:
        return f"stop_grace_period: {plain(grace)}s."
    return f"A grace period of {spoken(grace)}."


def _when(stop: Shutdown) -> str:
    return "when" if stop.margin == 0 else f"{spoken(-stop.margin)} before"


def _cut(setup: Setup, better: Timing) -> Iterator[Finding]:
    """Finds a shutdown timeout below the recovery time: a worker that waits as long for its jobs loses nothing."""
    shutdown, wanted, said = setup.timing.shutdown, better.shutdown, predict(better).recovery
    if shutdown is None or wanted is None or said is None or wanted <= shutdown:
        return
    rest = "then waits for its recovery" if setup.timing.max_stalled else "is not run again"
    says = f"A job that runs longer than {spoken(shutdown)} is killed at each deployment, and {rest}."
    arithmetic = f"shutdown {plain(shutdown)} s < recovery {plain(said.about)} s"
    name = f"{shutdown_name(setup)} = {plain(wanted)}" if setup.version else f"Wait {spoken(wanted)} for running jobs"
    remedy = f"{name}: as long as the recovery takes."
    yield Finding("short-shutdown", Severity.LOW, setup.where, says, arithmetic, remedy)


def _no_pause(setup: Setup) -> Finding:
    says = "There is no preStop pause: SIGTERM comes before probes, autoscalers and clients notice."
    return Finding("no-pre-stop", Severity.LOW, setup.where, says, remedy="preStop: sleep 5.")


def _health(setup: Setup, workload: Workload) -> Iterator[Finding]:
    if workload.is_probed is False:
        says = "It has no health check: a worker that hangs keeps its locks and takes no job."
        yield Finding("no-health-check", Severity.LOW, setup.where, says, remedy=_probes(setup, workload))
    elif workload.is_probed and setup.version and workload.kind is Kind.KUBERNETES:
        yield from _closed(setup, workload)


def _probes(setup: Setup, workload: Workload) -> str:
    """Returns the remedy for a missing health check, without what is configured already."""
    if not setup.version:
        return "A readiness and a liveness probe."
    setting = workload.settings.get(variables.HEALTH)
    first = "" if setting and _is_true(setting) else f"{variables.HEALTH}=true, and "
    if workload.kind is Kind.KUBERNETES:
        return f"{first or 'Write '}probes on /healthz and /healthz/readiness, port 5678."
    return f"{first or 'Write '}a healthcheck that asks http://localhost:5678/healthz."


def _closed(setup: Setup, workload: Workload) -> Iterator[Finding]:
    setting = workload.settings.get(variables.HEALTH)
    if setting and _is_true(setting):
        return
    remedy = f"{variables.HEALTH}=true"
    if (setting and setting.is_hidden) or (setting is None and workload.missing):
        source = "its value is not readable here" if setting else f"{' and '.join(workload.missing)} was not given"
        says = (
            f"It has probes, and whether its health endpoint is enabled is unknown: {source}. Without {remedy} "
            "Kubernetes restarts a healthy worker."
        )
        yield Finding("unknown-health-endpoint", Severity.LOW, setup.where, says, "", f"Check that it has {remedy}.")
        return
    says = "It has probes but no health endpoint is enabled: Kubernetes restarts a healthy worker."
    edits = written(setting.place, "true") if setting else added(workload.variables, (variables.HEALTH, "true"))
    yield Finding("closed-health-check", Severity.HIGH, setup.where, says, "", remedy, edits)


def _is_true(setting: Setting) -> bool:
    return setting.value.lower() in ("true", "1")


def _code_nodes(setup: Setup) -> Iterator[Finding]:
    """Says that this n8n gives its Code nodes less time than the rest of a workflow."""
    shutdown = setup.timing.shutdown
    if shutdown is None or setup.version is None or setup.version < variables.CUTS_CODE:
        return
    left = shutdown * variables.CODE_SHARE
    says = f"At a stop this n8n aborts Code nodes that still run after {spoken(left)}, and their executions fail."
    arithmetic = f"{variables.CODE_SHARE:g} × shutdown {plain(shutdown)} = {plain(left)} s"
    yield Finding("code-nodes-cut", Severity.NOTE, setup.where, says, arithmetic)
