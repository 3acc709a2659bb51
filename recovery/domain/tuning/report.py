"""Builds the tuning report: findings and predictions for each kind of worker, now and as proposed, and a patch per
file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recovery.domain.tuning import plan, seen, setups
from recovery.domain.tuning.findings import Edit, Finding, Severity, ordered, removed, written
from recovery.domain.tuning.of_scaling import of_connections, of_scaling, of_spot_nodes
from recovery.domain.tuning.of_stopping import of_stopping
from recovery.domain.tuning.of_timing import of_timing
from recovery.domain.tuning.of_variables import of_variables
from recovery.domain.tuning.patches import Patch, patch
from recovery.domain.tuning.prediction import Prediction, predict
from recovery.domain.tuning.proposal import proposed
from recovery.domain.tuning.seen import Running
from recovery.domain.tuning.setups import Options, Setup
from recovery.domain.tuning.timing import Timing
from recovery.domain.tuning.workloads import Kind, Scene, StorePolicy, Workload

SAFE_POLICY = "noeviction"
WORKERS_LIMIT = 50  # kinds of workers in one report: more findings than a person reads


@dataclass(frozen=True, slots=True)
class Outlook:
    """Timing and prediction of one kind of worker. `better` is the same timing where nothing is proposed."""

    setup: Setup
    better: Timing
    now: Prediction
    then: Prediction
    is_out_of_reach: bool = False  # the proposal changes code that is not among the files

    @property
    def is_changed(self) -> bool:
        return self.better != self.setup.timing


@dataclass(frozen=True, slots=True)
class Report:
    """The tuning report. `remarks`: what could not be read, and what was assumed."""

    findings: tuple[Finding, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    patches: tuple[Patch, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def is_grave(self) -> bool:
        return any(finding.severity is Severity.HIGH for finding in self.findings)


def report(scene: Scene, options: Options, running: Running | None = None) -> Report:
    """Builds the report. `running` None: the running queues were not read."""
    every = setups.setups(scene.workloads, options)
    outlooks = [_outlook(setup) for setup in every[:WORKERS_LIMIT]]
    found = [*_of_stores(scene.policies)]
    if running:
        found += [*seen.findings(running), *seen.differences(running, [outlook.setup for outlook in outlooks])]
    for outlook in outlooks:
        found += _of_setup(outlook, scene)
    workers = [outlook.setup.workload for outlook in outlooks]
    others = [workload for workload in scene.workloads if workload not in workers]
    for outlook in outlooks:
        found += plan.of_shared(outlook.setup, outlook.better, others)
    found += of_connections(scene)
    kept = ordered(found)
    remarks = [*_remarks(scene, outlooks)]
    if len(every) > WORKERS_LIMIT:
        remarks.append(f"{len(every) - WORKERS_LIMIT:,} more kinds of workers were left out.")
    return Report(kept, tuple(outlooks), _patches(scene, kept, outlooks), tuple(remarks))


def _outlook(setup: Setup) -> Outlook:
    workload = setup.workload
    may_pause = workload is not None and workload.kind is Kind.KUBERNETES and workload.pre_stop is not None
    better = proposed(setup.timing, has_pre_stop=may_pause)
    far = plan.is_out_of_reach(setup, better)
    return Outlook(setup, better, predict(setup.timing), predict(better), is_out_of_reach=far)


def _of_setup(outlook: Outlook, scene: Scene) -> Iterator[Finding]:
    setup, better = outlook.setup, outlook.better
    yield from of_variables(setup)
    yield from of_timing(setup, better)
    yield from of_stopping(setup, better)
    yield from of_spot_nodes(setup, better)
    for scaler in scene.scalers:
        if setup.workload and scaler.scales(setup.workload):
            yield from of_scaling(setup, scaler)
            return  # a second one of the same target would be another fault


def _of_stores(policies: Sequence[StorePolicy]) -> Iterator[Finding]:
    for policy in policies:
        if policy.setting.value != SAFE_POLICY:
            where = f"{policy.name} ({policy.file}:{policy.line})"
            says = "Under memory pressure this store evicts locks and jobs."
            said, remedy = f"maxmemory-policy {policy.setting.value}", f"maxmemory-policy {SAFE_POLICY}"
            edits = written(policy.setting.place, SAFE_POLICY) or removed(policy.setting)
            yield Finding("eviction", Severity.HIGH, where, says, said, remedy, edits)


def _patches(scene: Scene, findings: Sequence[Finding], outlooks: Sequence[Outlook]) -> tuple[Patch, ...]:
    # The edit of a value comes before one that would remove the same line because of the old value.
    edits: list[Edit] = [edit for outlook in outlooks for edit in plan.edits(outlook.setup, outlook.better)]
    edits += [edit for finding in findings for edit in finding.edits]
    made = (patch(file, text, [edit for edit in edits if edit.file == file]) for file, text in scene.texts.items())
    return tuple(one for one in made if one is not None)


def _remarks(scene: Scene, outlooks: Sequence[Outlook]) -> Iterator[str]:
    yield from scene.remarks
    for outlook in outlooks:
        setup = outlook.setup
        if setup.is_assumed:
            yield f"{setup.where}: its n8n version is unknown; the newest known version is assumed."
        yield from _unseen(setup.workload)
    if scene.texts and not outlooks:
        yield "No worker was found: neither an n8n worker nor a library that you named."


def _unseen(workload: Workload | None) -> Iterator[str]:
    if workload is None:
        return
    for name in workload.missing:
        yield f"{workload.where}: it also reads {name}, which was not given."
    hidden = sorted(setting.name for setting in workload.settings.values() if setting.is_hidden)
    if hidden:
        yield f"{workload.where}: unknown values: {', '.join(hidden)}."
