"""Turns the proposed timing into edits of the person's own files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from recovery.domain.tuning import variables
from recovery.domain.tuning.findings import Edit, Finding, Severity, added, plain, spoken, written
from recovery.domain.tuning.proposal import MARGIN, NARROW
from recovery.domain.tuning.setups import Setup, is_n8n, number, seconds
from recovery.domain.tuning.timing import Timing
from recovery.domain.tuning.versions import NEWEST
from recovery.domain.tuning.workloads import Kind, Workload

_MS = 1000


def edits(setup: Setup, better: Timing) -> tuple[Edit, ...]:
    """Returns the edits of what stands in the files; options that are set in a worker's code cannot be edited."""
    if setup.workload is None:
        return ()
    found = [*_stopping(setup, setup.workload, better)]
    if setup.version is not None:
        found += _variables(setup, setup.workload, better)
    return tuple(found)


def of_shared(setup: Setup, better: Timing, others: Iterable[Workload]) -> Iterator[Finding]:
    """Finds mains and webhook processors that read the worker's shutdown timeout and have a shorter grace period."""
    if setup.workload is None or setup.version is None or better.shutdown is None:
        return
    for other in others:
        if not is_n8n(other) or not _shares_shutdown(setup, setup.workload, other):
            continue
        pause, grace = other.pre_stop or 0.0, seconds(other.grace, other.default_grace)
        if grace is None or grace - pause - better.shutdown >= NARROW:
            continue
        longer = plain(ceil(pause + better.shutdown + MARGIN))
        says = (
            f"It reads the same variables as the worker, so it waits {spoken(better.shutdown)} too, and is killed "
            f"after {spoken(grace)}."
        )
        edits = written(other.grace.place, longer) if other.grace else added(other.grace_room, ("", longer))
        key = "stop_grace_period: {}s." if other.kind is Kind.COMPOSE else "terminationGracePeriodSeconds: {}."
        yield Finding("shared-variables", Severity.LOW, other.where, says, "", key.format(longer), edits)


def _shares_shutdown(setup: Setup, workload: Workload, other: Workload) -> bool:
    """Returns True if the line that holds, or will hold, the worker's shutdown timeout is the other's too."""
    name = shutdown_name(setup)
    setting, its = workload.settings.get(name), other.settings.get(name)
    if setting is not None:
        return its is not None and its.place is not None and its.place == setting.place
    return its is None and workload.variables is not None and workload.variables == other.variables


def is_out_of_reach(setup: Setup, better: Timing) -> bool:
    """Returns True if a proposed change belongs into code that is not among the files."""
    now = setup.timing
    is_changed = (now.lock, now.renew, now.stalled_interval) != (better.lock, better.renew, better.stalled_interval)
    return is_changed and setup.version is None


def _variables(setup: Setup, workload: Workload, better: Timing) -> Iterator[Edit]:
    fresh: list[tuple[str, str]] = []
    for name, value in _wanted(setup, better):
        setting = workload.settings.get(name)
        if setting is None:
            fresh.append((name, value))
        else:
            yield from written(setting.place, value)
    yield from added(workload.variables, *fresh)


def _wanted(setup: Setup, better: Timing) -> Iterator[tuple[str, str]]:
    now, version = setup.timing, setup.version
    pairs = (
        (variables.LOCK, now.lock, better.lock),
        (variables.RENEW, now.renew, better.renew),
        (variables.STALLED_INTERVAL, now.stalled_interval, better.stalled_interval),
    )
    for name, before, after in pairs:
        if before != after and version and variables.VARIABLES[name].covers(version):
            yield name, plain(after * _MS)
    if better.shutdown is not None and _shutdown_left(setup) != better.shutdown:
        yield shutdown_name(setup), plain(better.shutdown)


def _shutdown_left(setup: Setup) -> float | None:
    """Returns the shutdown timeout that is left once the old name, which overrides the new one, is removed."""
    settings = setup.workload.settings if setup.workload else {}
    new = settings.get(variables.SHUTDOWN)
    if new and variables.OLD_SHUTDOWN in settings and variables.has_alias(setup.version or NEWEST):
        return number(new.value)
    return setup.timing.shutdown


def shutdown_name(setup: Setup) -> str:
    """Returns the variable whose line is changed. The old name's line is renamed where the new name is not set, so the
    value is changed there.
    """
    settings = setup.workload.settings if setup.workload else {}
    version = setup.version
    is_old = version is not None and not variables.has_alias(version)
    if is_old or (variables.OLD_SHUTDOWN in settings and variables.SHUTDOWN not in settings):
        return variables.OLD_SHUTDOWN
    return variables.SHUTDOWN


def _stopping(setup: Setup, workload: Workload, better: Timing) -> Iterator[Edit]:
    if better.grace is not None and better.grace != setup.timing.grace:
        if workload.grace:
            yield from written(workload.grace.place, plain(better.grace))
        else:
            yield from added(workload.grace_room, ("", plain(better.grace)))
    if workload.kind is Kind.KUBERNETES and better.pre_stop != setup.timing.pre_stop and workload.pre_stop == 0:
        if workload.pre_stop_place:
            yield from written(workload.pre_stop_place, plain(better.pre_stop))
        else:
            yield from added(workload.pre_stop_room, ("", plain(better.pre_stop)))
