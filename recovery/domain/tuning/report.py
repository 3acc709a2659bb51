"""Builds the tuning report: findings and predictions for each kind of worker, now and as proposed, and a patch per
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recovery.domain.tuning import observed, proposal_edits, worker_setup
from recovery.domain.tuning.findings import (
    Severity,
    TextEdit,
    TuningFinding,
    remove_lines,
    replace_value,
    sort_findings,
)
from recovery.domain.tuning.observed import ObservedSettings
from recovery.domain.tuning.patches import Patch, patch
from recovery.domain.tuning.prediction import Prediction, predict
from recovery.domain.tuning.proposal import propose_timing
from recovery.domain.tuning.scaling_checks import check_connections, check_scaler, check_spot_nodes
from recovery.domain.tuning.shutdown_checks import check_shutdown
from recovery.domain.tuning.timing import WorkerTiming
from recovery.domain.tuning.timing_checks import check_timing
from recovery.domain.tuning.variable_checks import check_variables
from recovery.domain.tuning.worker_setup import TuningOptions, WorkerSetup
from recovery.domain.tuning.workloads import DeploymentFiles, EvictionSetting, Workload, WorkloadKind

SAFE_POLICY = "noeviction"
WORKERS_LIMIT = 50  # kinds of workers in one report: more findings than a person reads


@dataclass(frozen=True, slots=True)
class WorkerAssessment:
    """Timing and prediction of one kind of worker. `better` is the same timing where nothing is proposed."""

    setup: WorkerSetup
    better: WorkerTiming
    now: Prediction
    then: Prediction
    is_out_of_reach: bool = False  # the proposal changes code that is not among the files

    @property
    def is_changed(self) -> bool:
        return self.better != self.setup.timing


@dataclass(frozen=True, slots=True)
class TuningReport:
    """The tuning report. `remarks`: what could not be read, and what was assumed."""

    findings: tuple[TuningFinding, ...] = ()
    outlooks: tuple[WorkerAssessment, ...] = ()
    patches: tuple[Patch, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def is_grave(self) -> bool:
        return any(finding.severity is Severity.HIGH for finding in self.findings)


def report(
    deployment: DeploymentFiles, options: TuningOptions, running: ObservedSettings | None = None
) -> TuningReport:
    """Builds the report. `running` None: the running queues were not read."""
    every = worker_setup.setups(deployment.workloads, options)
    outlooks = [_outlook(setup) for setup in every[:WORKERS_LIMIT]]
    found = [*_of_stores(deployment.policies)]
    if running:
        found += [*observed.findings(running), *observed.differences(running, [outlook.setup for outlook in outlooks])]
    for outlook in outlooks:
        found += _of_setup(outlook, deployment)
    workers = [outlook.setup.workload for outlook in outlooks]
    others = [workload for workload in deployment.workloads if workload not in workers]
    for outlook in outlooks:
        found += proposal_edits.check_shared_variables(outlook.setup, outlook.better, others)
    found += check_connections(deployment)
    kept = sort_findings(found)
    remarks = [*_remarks(deployment, outlooks)]
    if len(every) > WORKERS_LIMIT:
        remarks.append(f"{len(every) - WORKERS_LIMIT:,} more kinds of workers were left out.")
    return TuningReport(kept, tuple(outlooks), _patches(deployment, kept, outlooks), tuple(remarks))


def _outlook(setup: WorkerSetup) -> WorkerAssessment:
    workload = setup.workload
    may_pause = workload is not None and workload.kind is WorkloadKind.KUBERNETES and workload.pre_stop is not None
    better = propose_timing(setup.timing, has_pre_stop=may_pause)
    far = proposal_edits.is_out_of_reach(setup, better)
    return WorkerAssessment(setup, better, predict(setup.timing), predict(better), is_out_of_reach=far)


def _of_setup(outlook: WorkerAssessment, deployment: DeploymentFiles) -> Iterator[TuningFinding]:
    setup, better = outlook.setup, outlook.better
    yield from check_variables(setup)
    yield from check_timing(setup, better)
    yield from check_shutdown(setup, better)
    yield from check_spot_nodes(setup, better)
    for scaler in deployment.scalers:
        if setup.workload and scaler.scales(setup.workload):
            yield from check_scaler(setup, scaler)
            return  # a second one of the same target would be another fault


def _of_stores(policies: Sequence[EvictionSetting]) -> Iterator[TuningFinding]:
    for policy in policies:
        if policy.setting.value != SAFE_POLICY:
            where = f"{policy.name} ({policy.file}:{policy.line})"
            says = "Under memory pressure this store evicts locks and jobs."
            said, remedy = f"maxmemory-policy {policy.setting.value}", f"maxmemory-policy {SAFE_POLICY}"
            edits = replace_value(policy.setting.place, SAFE_POLICY) or remove_lines(policy.setting)
            yield TuningFinding("eviction", Severity.HIGH, where, says, said, remedy, edits)


def _patches(
    deployment: DeploymentFiles, findings: Sequence[TuningFinding], outlooks: Sequence[WorkerAssessment]
) -> tuple[Patch, ...]:
    # The edit of a value comes before one that would remove the same line because of the old value.
    edits: list[TextEdit] = [
        edit for outlook in outlooks for edit in proposal_edits.edits_for(outlook.setup, outlook.better)
    ]
    edits += [edit for finding in findings for edit in finding.edits]
    made = (patch(file, text, [edit for edit in edits if edit.file == file]) for file, text in deployment.texts.items())
    return tuple(one for one in made if one is not None)


def _remarks(deployment: DeploymentFiles, outlooks: Sequence[WorkerAssessment]) -> Iterator[str]:
    yield from deployment.remarks
    for outlook in outlooks:
        setup = outlook.setup
        if setup.is_assumed:
            yield f"{setup.where}: its n8n version is unknown; the newest known version is assumed."
        yield from _unseen(setup.workload)
    if deployment.texts and not outlooks:
        yield "No worker was found: neither an n8n worker nor a library that you named."


def _unseen(workload: Workload | None) -> Iterator[str]:
    if workload is None:
        return
    for name in workload.missing:
        yield f"{workload.where}: it also reads {name}, which was not given."
    hidden = sorted(setting.name for setting in workload.settings.values() if setting.is_hidden)
    if hidden:
        yield f"{workload.where}: unknown values: {', '.join(hidden)}."
