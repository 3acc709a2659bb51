"""Findings about the lock, its renewals and the stalled check: how long a lost job waits, how easily one is lost."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.domain.queues.types import QueueLibrary
from recovery.domain.tuning.findings import Severity, TuningFinding, number_text, seconds_text
from recovery.domain.tuning.n8n_variables import FAILS_AT_ONCE
from recovery.domain.tuning.prediction import predict
from recovery.domain.tuning.proposal import ABOUT, ENOUGH_RENEWALS, LOCK, SLOW
from recovery.domain.tuning.timing import WorkerTiming
from recovery.domain.tuning.worker_setup import WorkerSetup

_MANY_STALLS = 3  # a job that kills its worker kills one more with each
_SHORT_LOCK = 10.0  # seconds; a busy event loop is late by as much
NAMES = {
    "lock": ("lockDuration", "QUEUE_WORKER_LOCK_DURATION"),
    "renew": ("lockRenewTime", "QUEUE_WORKER_LOCK_RENEW_TIME"),
    "stalled_interval": ("stalledInterval", "QUEUE_WORKER_STALLED_INTERVAL"),
    "max_stalled": ("maxStalledCount", "QUEUE_WORKER_MAX_STALLED_COUNT"),
}


def check_timing(setup: WorkerSetup, better: WorkerTiming) -> Iterator[TuningFinding]:
    timing = setup.timing
    if timing.stalled_interval <= 0:
        yield _unchecked(setup, better)
    else:
        yield from _slow(setup, better)
    yield from _renewals(setup, better)
    if timing.lock < _SHORT_LOCK:
        yield _short(setup)
    yield from _stalls(setup)


def name_of(part: str, setup: WorkerSetup) -> str:
    """Returns the name under which this part of the timing is set: a worker option, or n8n's variable."""
    return NAMES[part][setup.version is not None]


def _unchecked(setup: WorkerSetup, better: WorkerTiming) -> TuningFinding:
    name = name_of("stalled_interval", setup)
    says = "No check for lost jobs runs: a job whose worker dies stays active forever."
    if setup.timing.library is QueueLibrary.BULLMQ:
        says = "BullMQ refuses to start a worker whose check has no interval."
    return TuningFinding("no-check", Severity.HIGH, setup.where, says, f"{name} = 0", f"Set {_changes(setup, better)}.")


def _slow(setup: WorkerSetup, better: WorkerTiming) -> Iterator[TuningFinding]:
    timing, said = setup.timing, predict(setup.timing).recovery
    if said is None or said.about - timing.error_after <= ABOUT:  # no setting changes the time that n8n takes after it
        return
    severity = Severity.MEDIUM if said.about - timing.error_after > SLOW else Severity.LOW
    says = f"A job whose worker is killed waits about {seconds_text(said.about)}, at worst {seconds_text(said.worst)}."
    if timing.max_stalled == 0:
        says = (
            f"A job whose worker is killed counts as running for about {seconds_text(said.about)}, at worst "
            f"{seconds_text(said.worst)}, and is then failed, not run again."
        )
    yield TuningFinding("slow-recovery", severity, setup.where, says, _about(timing), _faster(setup, better))


def _about(timing: WorkerTiming) -> str:
    lock, interval, after = timing.lock, timing.stalled_interval, timing.error_after
    error = f" + n8n's own {number_text(after)}" if after else ""
    if lock < interval:
        marks = f"two checks, the first only marks it: 2 × {number_text(interval)}"
        return f"{marks}{error} = {number_text(2 * interval + after)} s"
    return f"lock {number_text(lock)} + check {number_text(interval)}{error} = {number_text(lock + interval + after)} s"


def _faster(setup: WorkerSetup, better: WorkerTiming) -> str:
    said = predict(better).recovery
    if said is None or better == setup.timing:
        return ""
    now, then = setup.timing.lock - setup.timing.renew, better.lock - better.renew
    words = f"Set {_changes(setup, better)}: about {seconds_text(said.about)}."
    if then < now:
        lost = "loses its jobs" if better.max_stalled else "has its jobs failed"
        words += f" A worker that is blocked for {seconds_text(then)} then {lost}; now that takes {seconds_text(now)}."
    return words


def _changes(setup: WorkerSetup, better: WorkerTiming) -> str:
    parts = (
        (part, getattr(setup.timing, part), getattr(better, part)) for part in ("lock", "renew", "stalled_interval")
    )
    said = [f"{name_of(part, setup)} = {number_text(after * 1000)}" for part, before, after in parts if before != after]
    return " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))


def _renewals(setup: WorkerSetup, better: WorkerTiming) -> Iterator[TuningFinding]:
    lock, renew = setup.timing.lock, setup.timing.renew
    if renew * ENOUGH_RENEWALS <= lock:
        return
    left = lock - renew
    arithmetic = f"lock {number_text(lock)} − renewal {number_text(renew)} = {number_text(left)} s"
    remedy = (
        f"Renew every {seconds_text(better.renew)}: {name_of('renew', setup)} = {number_text(better.renew * 1000)}."
    )
    if left <= 0:
        what = "taken from workers that still run them" if setup.timing.max_stalled else "failed while they still run"
        says = f"Every lock expires before it is renewed: jobs are {what}."
        yield TuningFinding("renewed-too-late", Severity.HIGH, setup.where, says, arithmetic, remedy)
    elif 2 * renew > lock:
        says = f"A renewal that comes {seconds_text(left)} late loses the job, which is less than the renewal interval."
        yield TuningFinding("renewed-too-late", Severity.MEDIUM, setup.where, says, arithmetic, remedy)
    else:
        second, lasts = seconds_text(2 * renew), seconds_text(lock)
        says = f"No renewal may fail: the next one comes at {second}, and the lock lasts {lasts}."
        yield TuningFinding("renewed-too-late", Severity.LOW, setup.where, says, arithmetic, remedy)


def _short(setup: WorkerSetup) -> TuningFinding:
    lock = setup.timing.lock
    rest = "they run twice" if setup.timing.max_stalled else "they are failed while they still run"
    says = f"A worker whose event loop is blocked for {seconds_text(lock)} loses its jobs while it is alive: {rest}."
    return TuningFinding(
        "short-lock",
        Severity.MEDIUM,
        setup.where,
        says,
        remedy=f"{name_of('lock', setup)} = {number_text(LOCK * 1000)} is usual.",
    )


def _stalls(setup: WorkerSetup) -> Iterator[TuningFinding]:
    count = setup.timing.max_stalled
    if setup.version and setup.version >= FAILS_AT_ONCE:
        says = (
            "This n8n fails an execution whose worker died at the first check that finds it, and does not run it again."
        )
        yield TuningFinding("fails-at-once", Severity.NOTE, setup.where, says)
    elif count == 0:
        says = "A job whose worker died is failed at the first check, and does not run again."
        remedy = f"{name_of('max_stalled', setup)} = 1 runs it once more. Leave it where a job must not run twice."
        yield TuningFinding("no-second-run", Severity.LOW, setup.where, says, remedy=remedy)
    elif count > _MANY_STALLS:
        says = f"A job that crashes its worker may crash {count + 1} of them before it is failed."
        remedy = f"{name_of('max_stalled', setup)} = 1 or 2."
        yield TuningFinding("many-stalls", Severity.LOW, setup.where, says, f"{count} + 1 = {count + 1}", remedy)
