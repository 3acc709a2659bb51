"""Whatever is seen, a verdict is never bolder than its evidence."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.stuck.context import LocklessObservation, ParentState, VerdictContext, WorkerChange
from recovery.domain.stuck.job_rules import verdict_for_job
from recovery.domain.stuck.lock_expiry import ENDED_FOR
from recovery.domain.stuck.types import VerdictKind

NOW = 1_795_000_000_000
REF = QueueRef("main", "bull:mail").job("7")
times = st.integers(NOW - 60_000, NOW) | st.integers(NOW - 10_000_000, NOW)
names = st.sampled_from(["", "mail-1", "mail-2", "a b", "\udcff"])
locks = st.none() | st.none() | st.builds(JobLock, st.just("w:1"), st.none() | st.integers(0, 600_000))
changes = st.lists(st.builds(WorkerChange, names, times), max_size=3).map(lambda found: tuple(sorted(found, key=_at)))
rows = st.builds(
    JobRow,
    ref=st.just(REF),
    state=st.just(JobState.ACTIVE),
    processed_at=st.none() | times,
    stalls=st.integers(0, 3),
    worker=names,
    lock=locks,
    lock_known=st.sampled_from([True, True, True, False]),
    missing=st.sampled_from([False, False, False, True]),
)
sightings = st.builds(LocklessObservation, times, st.integers(1, 3), st.booleans(), has_expired=st.booleans())
parents = st.sampled_from(ParentState)


def _at(change: WorkerChange) -> int:
    return change.at


@st.composite
def surroundings(draw: st.DrawFn) -> VerdictContext:
    connected = draw(st.frozensets(names.filter(bool), max_size=2))
    unnamed = draw(st.integers(0, 2))
    return VerdictContext(
        now=NOW,
        has_window=draw(st.booleans()),
        workers=draw(st.none() | st.just(len(connected) + unnamed)),
        names=connected,
        unnamed=unnamed,
        left=draw(changes),
        came=draw(changes),
        stalled_check_ttl=draw(st.none() | st.integers(0, 60_000)),
        watchdog_seen_at=draw(st.none() | times),
        watched_since=draw(st.none() | times),
        stalled_interval=draw(st.sampled_from([1_000, 30_000, 600_000])),
        lock_length=draw(st.none() | st.integers(1, 600_000)),
        is_paused=draw(st.booleans()),
        overdue_after=draw(st.none() | st.integers(1, 1_000_000)),
        restarted_at=draw(st.none() | times),
        lost_together=draw(st.integers(0, 20)),
        cpu=draw(st.none() | st.floats(0, 100)),
        is_n8n=draw(st.booleans()),
    )


@given(rows, surroundings(), sightings, parents, st.integers(0, 5))
def test_no_verdict_is_bolder_than_what_was_seen(
    row: JobRow, around: VerdictContext, sighting: LocklessObservation, parent: ParentState, orphaned: int
) -> None:
    found = verdict_for_job(row, around, sighting=sighting, parent=parent, orphaned=orphaned)
    kind = found.kind
    if not row.lock_known:
        assert kind is VerdictKind.UNKNOWN
    if kind in (VerdictKind.RUNNING, VerdictKind.LATE, VerdictKind.OVERDUE, VerdictKind.STRAY, VerdictKind.WORKER_LOST):
        assert row.lock is not None
    if kind.is_orphaned:
        assert row.lock is None
        if around.has_window:
            assert sighting.looks >= 2
            enough = ENDED_FOR if sighting.has_expired else around.stalled_interval
            assert around.now - sighting.since >= min(enough, around.stalled_interval)
        else:
            assert sighting.looks >= 2 or sighting.is_atomic
    if kind is VerdictKind.ABANDONED and around.workers:
        assert around.stalled_check_ttl is None
    if found.suggests in (Action.REQUEUE, Action.FAIL):
        assert kind.is_orphaned


@given(rows, surroundings(), sightings, parents, st.integers(0, 5))
def test_every_verdict_has_evidence_a_fate_and_words_for_a_screen(
    row: JobRow, around: VerdictContext, sighting: LocklessObservation, parent: ParentState, orphaned: int
) -> None:
    found = verdict_for_job(row, around, sighting=sighting, parent=parent, orphaned=orphaned)
    assert found.evidence
    assert all(found.evidence)
    assert found.fate
    assert found.cause_evidence or not found.cause
    for said in (*found.evidence, found.cause_evidence, found.fate):
        said.encode()
    assert found.until is None or found.until >= around.now


@given(rows, surroundings(), sightings, st.integers(0, 10_000_000))
def test_once_proven_it_stays_proven_while_nothing_changes(
    row: JobRow, around: VerdictContext, sighting: LocklessObservation, later: int
) -> None:
    first = verdict_for_job(row, around, sighting=sighting)
    again = replace(sighting, looks=sighting.looks + 1)
    left = max(0, (around.stalled_check_ttl or 0) - later)  # a key's time runs on, too
    second = verdict_for_job(
        row, replace(around, now=around.now + later, stalled_check_ttl=left or None), sighting=again
    )
    if first.kind.is_orphaned:
        assert second.kind.is_orphaned
    if first.kind is VerdictKind.ABANDONED:
        assert second.kind is VerdictKind.ABANDONED


@given(rows, surroundings(), sightings)
def test_what_is_not_known_of_the_workers_dooms_and_abandons_nobody(
    row: JobRow, around: VerdictContext, sighting: LocklessObservation
) -> None:
    unknown = replace(around, workers=None, names=frozenset(), watched_since=around.now, watchdog_seen_at=None)
    found = verdict_for_job(row, unknown, sighting=sighting)
    assert found.kind is not VerdictKind.ABANDONED
    if found.kind is VerdictKind.WORKER_LOST:
        assert row.lock is not None
        assert row.lock.ttl is None
