"""Turns the proposed timing into edits of the person's own files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from recovery.domain.n8n.versions import NEWEST
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
from recovery.domain.tuning.proposal import MARGIN, NARROW
from recovery.domain.tuning.timing import WorkerTiming
from recovery.domain.tuning.worker_setup import WorkerSetup, is_n8n, number, seconds
from recovery.domain.tuning.workloads import Workload, WorkloadKind

_MS = 1000


def edits_for(setup: WorkerSetup, better: WorkerTiming) -> tuple[TextEdit, ...]:
    """Returns the edits of what stands in the files; options that are set in a worker's code cannot be edited."""
    if setup.workload is None:
        return ()
    found = [*_stopping(setup, setup.workload, better)]
    if setup.version is not None:
        found += _variables(setup, setup.workload, better)
    return tuple(found)


def check_shared_variables(
    setup: WorkerSetup, better: WorkerTiming, others: Iterable[Workload]
) -> Iterator[TuningFinding]:
    """Finds mains and webhook processors that read the worker's shutdown timeout and have a shorter grace period."""
    if setup.workload is None or setup.version is None or better.shutdown is None:
        return
    for other in others:
        if not is_n8n(other) or not _shares_shutdown(setup, setup.workload, other):
            continue
        pause, grace = other.pre_stop or 0.0, seconds(other.grace, other.default_grace)
        if grace is None or grace - pause - better.shutdown >= NARROW:
            continue
        longer = number_text(ceil(pause + better.shutdown + MARGIN))
        says = (
            f"It reads the same variables as the worker, so it waits {seconds_text(better.shutdown)} too, and is "
            "killed "
            f"after {seconds_text(grace)}."
        )
        edits = replace_value(other.grace.place, longer) if other.grace else add_lines(other.grace_room, ("", longer))
        key = "stop_grace_period: {}s." if other.kind is WorkloadKind.COMPOSE else "terminationGracePeriodSeconds: {}."
        yield TuningFinding("shared-variables", Severity.LOW, other.where, says, "", key.format(longer), edits)


def _shares_shutdown(setup: WorkerSetup, workload: Workload, other: Workload) -> bool:
    """Returns True if the line that holds, or will hold, the worker's shutdown timeout is the other's too."""
    name = shutdown_name(setup)
    setting, its = workload.settings.get(name), other.settings.get(name)
    if setting is not None:
        return its is not None and its.place is not None and its.place == setting.place
    return its is None and workload.variables is not None and workload.variables == other.variables


def is_out_of_reach(setup: WorkerSetup, better: WorkerTiming) -> bool:
    """Returns True if a proposed change belongs into code that is not among the files."""
    now = setup.timing
    is_changed = (now.lock, now.renew, now.stalled_interval) != (better.lock, better.renew, better.stalled_interval)
    return is_changed and setup.version is None


def _variables(setup: WorkerSetup, workload: Workload, better: WorkerTiming) -> Iterator[TextEdit]:
    fresh: list[tuple[str, str]] = []
    for name, value in _wanted(setup, better):
        setting = workload.settings.get(name)
        if setting is None:
            fresh.append((name, value))
        else:
            yield from replace_value(setting.place, value)
    yield from add_lines(workload.variables, *fresh)


def _wanted(setup: WorkerSetup, better: WorkerTiming) -> Iterator[tuple[str, str]]:
    now, version = setup.timing, setup.version
    pairs = (
        (n8n_variables.LOCK, now.lock, better.lock),
        (n8n_variables.RENEW, now.renew, better.renew),
        (n8n_variables.STALLED_INTERVAL, now.stalled_interval, better.stalled_interval),
    )
    for name, before, after in pairs:
        if before != after and version and n8n_variables.VARIABLES[name].covers(version):
            yield name, number_text(after * _MS)
    if better.shutdown is not None and _shutdown_left(setup) != better.shutdown:
        yield shutdown_name(setup), number_text(better.shutdown)


def _shutdown_left(setup: WorkerSetup) -> float | None:
    """Returns the shutdown timeout that is left once the old name, which overrides the new one, is removed."""
    settings = setup.workload.settings if setup.workload else {}
    new = settings.get(n8n_variables.SHUTDOWN)
    if new and n8n_variables.OLD_SHUTDOWN in settings and n8n_variables.has_alias(setup.version or NEWEST):
        return number(new.value)
    return setup.timing.shutdown


def shutdown_name(setup: WorkerSetup) -> str:
    """Returns the variable whose line is changed. The old name's line is renamed where the new name is not set, so the
    value is changed there.
    """
    settings = setup.workload.settings if setup.workload else {}
    version = setup.version
    is_old = version is not None and not n8n_variables.has_alias(version)
    if is_old or (n8n_variables.OLD_SHUTDOWN in settings and n8n_variables.SHUTDOWN not in settings):
        return n8n_variables.OLD_SHUTDOWN
    return n8n_variables.SHUTDOWN


def _stopping(setup: WorkerSetup, workload: Workload, better: WorkerTiming) -> Iterator[TextEdit]:
    if better.grace is not None and better.grace != setup.timing.grace:
        if workload.grace:
            yield from replace_value(workload.grace.place, number_text(better.grace))
        else:
            yield from add_lines(workload.grace_room, ("", number_text(better.grace)))
    if workload.kind is WorkloadKind.KUBERNETES and better.pre_stop != setup.timing.pre_stop and workload.pre_stop == 0:
        if workload.pre_stop_place:
            yield from replace_value(workload.pre_stop_place, number_text(better.pre_stop))
        else:
            yield from add_lines(workload.pre_stop_room, ("", number_text(better.pre_stop)))
