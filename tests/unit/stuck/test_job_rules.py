"""Verdicts: each kind, each cause, their boundaries, and what happens if nobody acts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.stuck.causes import lost_instance
from recovery.domain.stuck.context import LocklessObservation, ParentState, VerdictContext, WorkerChange, renewed_above
from recovery.domain.stuck.job_rules import stray_verdict, verdict_for_job
from recovery.domain.stuck.types import LossCause, Verdict, VerdictKind

NOW = 1_795_000_000_000
SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
REF = QueueRef("main", "bull:mail").job("7")

# A worker of a new BullMQ that is well; the tests change one thing at a time.
WELL = VerdictContext(
    now=NOW,
    has_window=False,
    workers=2,
    names=frozenset({"mail-1", "mail-2"}),
    stalled_check_ttl=18_000,
    watchdog_seen_at=NOW,
    watched_since=NOW - 600_000,
    lock_length=30_000,
)
OLD = replace(WELL, has_window=True, names=frozenset(), unnamed=2)
EMPTY = replace(WELL, workers=0, names=frozenset(), stalled_check_ttl=None, watchdog_seen_at=NOW - 20_000)
NO_HEARTBEAT = " and has sent n8n no heartbeat since: its process ended without a shutdown."
SURE = LocklessObservation(NOW, is_atomic=True)


def row(**facts: Any) -> JobRow:
    known: dict[str, Any] = {"processed_at": NOW - MINUTE, "lock": JobLock("w:1", 22_000), "worker": "mail-1"}
    return JobRow(REF, JobState.ACTIVE, **(known | facts))


def lockless(**facts: Any) -> JobRow:
    return row(lock=None, **facts)


def seen(since: int, *, looks: int = 2, sure: bool = False) -> LocklessObservation:
    return LocklessObservation(NOW - since, looks, sure)


def judged(
    job: JobRow, around: VerdictContext = WELL, sighting: LocklessObservation | None = None, **more: Any
) -> Verdict:
    return verdict_for_job(job, around, sighting=sighting, **more)


# -- held, late


def test_a_lock_with_time_left_is_held() -> None:
    found = judged(row())
    assert (found.kind, found.suggests, found.until) == (VerdictKind.RUNNING, None, None)
    assert found.why == "Worker mail-1 holds it; its lock has 22 s left."
    assert found.fate == "Nothing happens: its worker renews the lock."


@pytest.mark.parametrize(
    ("ttl", "kind"), [(12_000, VerdictKind.RUNNING), (11_999, VerdictKind.LATE), (0, VerdictKind.LATE)]
)
def test_a_lock_that_missed_a_renewal_is_late(ttl: int, kind: VerdictKind) -> None:
    assert judged(row(lock=JobLock("w:1", ttl))).kind is kind


def test_a_late_lock_says_when_it_ends_and_what_then() -> None:
    found = judged(row(lock=JobLock("w:1", 9_000)))
    assert found.fate == (
        "The lock expires in 9 s unless it is renewed; then a worker's stalled check picks it up within 30 s."
    )
    assert found.until == NOW + 9_000 + 30_000
    assert "Worker mail-1 is still connected." in found.why


@pytest.mark.parametrize(
    ("every", "length", "below"),
    [
        (10_000, 60_000, 45_000),  # n8n from 1.111 on: five renewals a lock
        (5_000, 20_000, 12_500),
        (1_000, 60_000, 45_000),  # however often: half a minute's hiccup is not made of a second's
        (15_000, 30_000, 12_000),  # the libraries' own half
        (25_000, 60_000, 24_000),
    ],
)
def test_a_lock_is_late_after_one_and_a_half_renewal_intervals(every: int, length: int, below: int) -> None:
    assert round(renewed_above(every, length) * length) == below


@pytest.mark.parametrize(
    ("is_seen", "words"),
    [(True, "which come every 10 s here."), (False, "which come every 10 s by n8n's default.")],
)
def test_a_late_lock_of_n8n_says_where_its_renewals_are_known_from(is_seen: bool, words: str) -> None:
    n8n = replace(OLD, lock_length=60_000, renewed_above=0.75, renews_every=10_000, is_rhythm_seen=is_seen, is_n8n=True)
    found = judged(row(lock=JobLock("w", 44_000)), n8n)
    assert found.kind is VerdictKind.LATE
    assert found.why == f"Its lock has 44 s of 1 min left: at least one renewal was missed, {words}"
    assert not found.needs_a_person
    assert judged(row(lock=JobLock("w", 45_000)), n8n).kind is VerdictKind.RUNNING


def test_where_no_lock_was_measured_nothing_is_late() -> None:
    assert judged(row(lock=JobLock("w:1", 50)), replace(WELL, lock_length=None)).kind is VerdictKind.RUNNING


# -- doomed


def test_a_lock_whose_named_holder_has_gone_is_doomed() -> None:
    around = replace(WELL, workers=1, names=frozenset({"mail-2"}), left=(WorkerChange("mail-1", NOW - 4 * MINUTE),))
    found = judged(row(lock=JobLock("w:1", 12_000)), replace(around, lock_length=300_000))
    assert found.kind is VerdictKind.WORKER_LOST
    assert found.why == "Worker mail-1 lost its connection 4 min ago, and its lock is still there."
    assert found.fate == "The lock expires in 12 s; then a worker's stalled check picks it up within 30 s."
    assert found.until == NOW + 42_000
    assert found.suggests is Action.RELEASE
    assert not found.needs_a_person


def test_beside_unnamed_workers_the_name_in_a_job_says_nothing() -> None:
    around = replace(WELL, names=frozenset({"mail-2"}), unnamed=1)
    assert judged(row(), around).kind is VerdictKind.RUNNING


def test_two_workers_of_one_name_hide_nobody_elses_going() -> None:
    twins = replace(WELL, workers=2, names=frozenset({"mail-2"}))
    assert judged(row(), twins).kind is VerdictKind.WORKER_LOST
    assert judged(row(worker="mail-2"), twins).kind is VerdictKind.RUNNING


def test_a_name_that_redis_does_not_take_is_not_missed() -> None:
    assert judged(row(worker="mail 1")).kind is VerdictKind.RUNNING


def test_a_lock_that_was_renewed_after_its_holder_went_is_held() -> None:
    around = replace(WELL, workers=1, names=frozenset({"mail-2"}), left=(WorkerChange("mail-1", NOW - MINUTE),))
    assert judged(row(lock=JobLock("w:1", 29_000)), around).kind is VerdictKind.RUNNING


def test_with_no_worker_at_all_every_lock_is_doomed_and_nothing_follows() -> None:
    found = judged(row(worker="", lock=JobLock("w:1", 12_000)), EMPTY)
    assert found.kind is VerdictKind.WORKER_LOST
    assert (
        found.fate
        == "The lock expires in 12 s; then it is never recovered: no worker is connected, so no stalled check runs."
    )
    assert found.until is None
    assert found.needs_a_person


def test_an_empty_list_of_workers_needs_a_second_witness() -> None:
    """Workers may hide their names: somebody has just run the stalled check."""
    hidden = replace(EMPTY, stalled_check_ttl=20_000)
    assert judged(row(), hidden).kind is VerdictKind.RUNNING
    seen_going = replace(hidden, left=(WorkerChange("", NOW - 12_000),))
    assert judged(row(lock=JobLock("w:1", 15_000)), seen_going).kind is VerdictKind.WORKER_LOST
    renewed = row(lock=JobLock("w:1", 25_000))  # by whom, when nobody is there?
    assert judged(renewed, seen_going).kind is VerdictKind.RUNNING


def test_a_check_that_ran_after_the_last_worker_went_shows_a_hidden_one() -> None:
    around = replace(EMPTY, stalled_check_ttl=29_000, left=(WorkerChange("", NOW - 12_000),))
    assert judged(row(), around).kind is VerdictKind.RUNNING


def test_a_lock_without_end_is_doomed_once_a_living_holder_would_have_renewed_it() -> None:
    endless = row(lock=JobLock("w:1", None), worker="")
    assert judged(endless, WELL, seen(29_999)).kind is VerdictKind.RUNNING
    found = judged(endless, WELL, seen(30_000))
    assert (found.kind, found.suggests) == (VerdictKind.WORKER_LOST, Action.RELEASE)
    assert found.fate == "Never recovered: the lock never expires, so no stalled check picks it up."
    assert found.needs_a_person


# -- unlocked, orphan, abandoned


def test_one_sure_look_proves_an_orphan_of_a_new_bullmq() -> None:
    found = judged(lockless(), WELL, SURE)
    assert (found.kind, found.suggests) == (VerdictKind.ORPHAN, Action.REQUEUE)
    assert found.fate == "A worker's stalled check picks it up within 18 s."
    assert found.until == NOW + 18_000
    assert not found.needs_a_person


def test_a_look_that_was_not_sure_takes_a_second_one() -> None:
    assert judged(lockless()).kind is VerdictKind.UNLOCKED
    assert judged(lockless(), WELL, seen(1)).kind is VerdictKind.ORPHAN


@pytest.mark.parametrize(
    ("since", "looks", "kind"),
    [(30_000, 2, VerdictKind.ORPHAN), (29_999, 2, VerdictKind.UNLOCKED), (90_000, 1, VerdictKind.UNLOCKED)],
)
def test_older_libraries_take_two_sightings_a_stalled_interval_apart(since: int, looks: int, kind: VerdictKind) -> None:
    assert judged(lockless(), OLD, seen(since, looks=looks, sure=True)).kind is kind


def test_what_is_not_proven_says_when_it_will_be() -> None:
    found = judged(lockless(processed_at=None), OLD, seen(12_000))
    assert found.why == (
        "It is active and never started and has had no lock for 12 s. "
        "With this library a starting job briefly has no lock: confirmed in 18 s."
    )
    assert found.suggests is None


@pytest.mark.parametrize(
    ("since", "looks", "kind"),
    [(1_500, 2, VerdictKind.ORPHAN), (1_499, 2, VerdictKind.UNLOCKED), (90_000, 1, VerdictKind.UNLOCKED)],
)
def test_a_lock_that_was_seen_to_run_out_proves_it_with_the_second_look(
    since: int, looks: int, kind: VerdictKind
) -> None:
    found = judged(lockless(), OLD, replace(seen(since, looks=looks), has_expired=True))
    assert found.kind is kind
    assert "Its lock expired: no worker renewed it." in found.evidence


def test_what_ran_out_just_now_says_when_it_is_proven() -> None:
    found = judged(lockless(), OLD, replace(seen(500), has_expired=True))
    assert found.evidence[-1] == "Confirmed at the next check, in 1 s."


def test_an_orphan_without_a_watchdog_is_abandoned() -> None:
    found = judged(lockless(), EMPTY, seen(2 * MINUTE))
    assert found.kind is VerdictKind.ABANDONED
    assert found.fate == "Never recovered: no worker is connected, so no stalled check runs."
    assert found.evidence == (
        "It is active and has had no lock for 2 min.",
        "No worker is connected, so no stalled check runs.",
    )
    assert found.needs_a_person
    assert found.until is None


@pytest.mark.parametrize(("silent", "kind"), [(60_000, VerdictKind.ORPHAN), (60_001, VerdictKind.ABANDONED)])
def test_workers_that_leave_the_check_out_abandon_their_orphans(silent: int, kind: VerdictKind) -> None:
    around = replace(WELL, stalled_check_ttl=None, watchdog_seen_at=NOW - silent)
    found = judged(lockless(), around, SURE)
    assert found.kind is kind
    if kind is VerdictKind.ABANDONED:
        assert (
            found.fate == "Never recovered: workers are connected, but no worker has run the stalled check for 1 min."
        )


def test_a_queue_that_was_only_just_looked_at_is_not_called_unwatched() -> None:
    around = replace(WELL, stalled_check_ttl=None, watchdog_seen_at=None, watched_since=NOW - 10_000)
    assert judged(lockless(), around, SURE).kind is VerdictKind.ORPHAN


def test_unknown_workers_stay_unknown() -> None:
    around = replace(WELL, workers=None, names=frozenset())
    assert judged(row(), around).kind is VerdictKind.RUNNING
    found = judged(lockless(), around, SURE)
    assert found.kind is VerdictKind.ORPHAN
    assert found.fate.endswith("Whether a worker is connected is not known.")


def test_a_job_that_stalled_before_is_told_to_fail() -> None:
    assert "it has stalled once before, so it fails" in judged(lockless(stalls=1), WELL, SURE).fate


def test_a_paused_queue_keeps_what_its_watchdog_takes() -> None:
    assert judged(lockless(), replace(WELL, is_paused=True), SURE).fate.endswith("because the queue is paused.")


def test_a_workflow_of_n8n_is_not_offered_to_run_again() -> None:
    assert judged(lockless(), replace(OLD, is_n8n=True), seen(MINUTE)).suggests is Action.FAIL


# -- quarantined


@pytest.mark.parametrize(("before", "quarantined"), [(1, False), (2, True)])
def test_the_third_time_in_72_hours_is_quarantined(before: int, quarantined: bool) -> None:
    found = judged(lockless(), WELL, SURE, orphaned=before)
    assert (found.is_quarantined, found.orphaned) == (quarantined, before)
    assert found.suggests is (Action.FAIL if quarantined else Action.REQUEUE)
    assert found.needs_a_person is quarantined


def test_a_job_that_is_held_is_no_quarantine() -> None:
    assert not judged(row(), orphaned=9).is_quarantined


# -- overdue, ghost, stray, unknown


@pytest.mark.parametrize(
    ("limit", "kind"), [(MINUTE, VerdictKind.RUNNING), (MINUTE - 1, VerdictKind.OVERDUE), (None, VerdictKind.RUNNING)]
)
def test_a_job_that_runs_longer_than_its_queue_allows_is_overdue(limit: int | None, kind: VerdictKind) -> None:
    found = judged(row(), replace(WELL, overdue_after=limit))
    assert found.kind is kind
    assert found.suggests is (Action.CANCEL if kind is VerdictKind.OVERDUE else None)


def test_an_id_without_a_job_is_a_ghost() -> None:
    found = judged(lockless(missing=True, processed_at=None), WELL, SURE)
    assert (found.kind, found.suggests) == (VerdictKind.MISSING_DATA, Action.REMOVE)
    assert judged(row(missing=True)).suggests is None


@pytest.mark.parametrize(
    ("parent", "kind"),
    [
        (ParentState.FAILED, VerdictKind.STRAY),
        (ParentState.GONE, VerdictKind.STRAY),
        (ParentState.ALIVE, VerdictKind.RUNNING),
        (ParentState.UNKNOWN, VerdictKind.RUNNING),
        (ParentState.NONE, VerdictKind.RUNNING),
    ],
)
def test_a_job_whose_parent_is_gone_runs_for_nobody(parent: ParentState, kind: VerdictKind) -> None:
    assert judged(row(parent="bull:flow:1"), parent=parent).kind is kind


def test_a_stray_that_waits_is_told_too() -> None:
    waiting = JobRow(REF, JobState.WAITING, parent="bull:flow:1")
    found = stray_verdict(waiting, ParentState.FAILED)
    assert found is not None
    assert (found.why, found.suggests) == ("Its parent has failed.", Action.REMOVE)
    assert stray_verdict(waiting, ParentState.ALIVE) is None
    assert stray_verdict(waiting, ParentState.UNKNOWN) is None


def test_where_we_may_not_look_nothing_is_said() -> None:
    found = judged(lockless(lock_known=False), EMPTY, seen(MINUTE, sure=True))
    assert (found.kind, found.suggests, found.until) == (VerdictKind.UNKNOWN, None, None)


def test_what_is_lost_comes_before_what_is_late_or_long() -> None:
    around = replace(EMPTY, overdue_after=1)
    assert judged(row(), around, parent=ParentState.GONE).kind is VerdictKind.WORKER_LOST
    assert judged(lockless(), around, seen(MINUTE), parent=ParentState.GONE).kind is VerdictKind.ABANDONED


# -- causes


def test_a_worker_that_went_and_that_nobody_replaced_has_crashed() -> None:
    around = replace(WELL, names=frozenset({"mail-2", "mail-9"}), left=())
    gone = replace(around, left=(WorkerChange("mail-1", NOW - 4 * MINUTE, "eu-2", 97.0),))
    found = judged(lockless(processed_at=NOW - HOUR), gone, seen(210_000, sure=True))
    assert found.cause is LossCause.CRASHED
    assert found.cause_evidence == (
        "worker mail-1 lost its connection 4 min ago (server eu-2 was at 97 %), and none replaced it within 1 min."
    )


def test_while_it_may_still_be_replaced_the_cause_is_unknown() -> None:
    around = replace(WELL, names=frozenset({"mail-2"}), left=(WorkerChange("mail-1", NOW - MINUTE + 1),))
    lost = lockless(processed_at=NOW - HOUR)
    found = judged(lost, around, seen(20_000, sure=True))
    assert found.cause is LossCause.UNKNOWN
    assert found.cause_evidence.endswith("whether it is replaced is not known yet.")
    assert judged(lost, replace(around, now=NOW + 1), seen(20_000, sure=True)).cause is LossCause.CRASHED


@pytest.mark.parametrize(
    ("left", "cause", "words"),
    [
        (-1_000, LossCause.STARVED, "stayed connected"),  # it was gone before the job began
        (-100, LossCause.UNKNOWN, "as the job started: it may have been another's"),  # by a clock that is not its own
        (5_000, LossCause.UNKNOWN, "as the job started: it may have been another's"),
        (10_001, LossCause.CRASHED, "lost its connection"),
    ],
)
def test_a_worker_that_left_before_the_job_began_is_not_blamed(left: int, cause: LossCause, words: str) -> None:
    began = NOW - 3 * MINUTE
    near = replace(OLD, left=(WorkerChange("", began + left, "eu-2"),), watched_since=NOW - HOUR, hosts={"": "eu-2"})
    found = judged(lockless(worker="", processed_at=began), near, replace(seen(145_000), cpu=97.0))
    assert (found.cause, words in found.cause_evidence) == (cause, True)


@pytest.mark.parametrize(
    ("ending", "cause", "words"),
    [
        (
            "died",
            LossCause.CRASHED,
            "worker worker-a lost its connection 50 s ago" + NO_HEARTBEAT,
        ),
        ("stopped", LossCause.UNKNOWN, ""),  # it waited for its jobs: another one had this
        (
            "",
            LossCause.UNKNOWN,
            "worker worker-a lost its connection 50 s ago; whether it is replaced is not known yet.",
        ),
    ],
)
def test_n8ns_registry_tells_which_worker_left_and_how_it_ended(ending: str, cause: LossCause, words: str) -> None:
    went = WorkerChange("", NOW - 50_000, instance="worker-a", ending=ending)
    near = replace(OLD, left=(went,), is_n8n=True, lock_length=60_000, renewed_above=0.75)
    found = judged(lockless(worker="", processed_at=NOW - HOUR), near, seen(1_000))
    assert (found.cause, found.cause_evidence) == (cause, words)


@pytest.mark.parametrize(
    "came", [(), (WorkerChange("", NOW - 40_000, connection="new"),)], ids=["not replaced", "replaced"]
)
def test_a_worker_that_ran_out_of_its_shutdown_time_did_not_crash(came: tuple[WorkerChange, ...]) -> None:
    """Whether another one has come since: its log says how it ended."""
    went = WorkerChange("", NOW - 50_000, instance="worker-a", ending="died", gave_up_after=30)
    near = replace(OLD, left=(went,), came=came, connections=frozenset({"new"}), is_n8n=True, lock_length=60_000)
    found = judged(lockless(worker="", processed_at=NOW - HOUR), near, seen(1_000))
    assert found.cause is LossCause.TIMED_OUT
    assert found.cause_evidence == (
        "worker worker-a lost its connection 50 s ago: it did not end within its 30 s after SIGTERM, says its log."
    )


@pytest.mark.parametrize(
    ("lock", "left", "name"),
    [
        (JobLock("w", 35_000), [("worker-a", 20_000)], "worker-a"),
        (JobLock("w", 35_000), [("worker-a", 30_000)], ""),  # the lock was renewed since
        (JobLock("w", 35_000), [("worker-a", 20_000), ("worker-b", 19_000)], ""),
        (JobLock("w", 35_000), [("worker-a", 20_000), ("", 19_000)], ""),
        (None, [("worker-a", 60_000)], "worker-a"),
    ],
)
def test_the_process_that_had_a_job_is_named_where_no_other_can_have_had_it(
    lock: JobLock | None, left: list[tuple[str, int]], name: str
) -> None:
    changes = tuple(WorkerChange("", NOW - ago, instance=instance) for instance, ago in left)
    near = replace(OLD, left=changes, is_n8n=True, lock_length=60_000, renewed_above=0.75)
    assert lost_instance(row(lock=lock, worker="", processed_at=NOW - HOUR), near, NOW - 1_000) == name


@pytest.mark.parametrize(("ago", "is_told"), [(20_000, True), (30_000, False)])
def test_a_late_job_names_the_worker_that_left_since_its_last_renewal(ago: int, is_told: bool) -> None:
    went = WorkerChange("", NOW - ago, instance="worker-a")
    near = replace(OLD, left=(went,), is_n8n=True, lock_length=60_000, renewed_above=0.75, renews_every=10_000)
    found = judged(row(lock=JobLock("w", 35_000), worker=""), near)
    assert found.kind is VerdictKind.LATE
    assert ("Worker worker-a lost its connection 20 s ago." in found.evidence) is is_told


def test_the_only_worker_that_went_as_the_job_began_had_it() -> None:
    began = NOW - 3 * MINUTE
    alone = replace(EMPTY, left=(WorkerChange("mail-1", began + 5_000),))
    assert judged(lockless(processed_at=began), alone, seen(145_000, sure=True)).cause is LossCause.CRASHED


@pytest.mark.parametrize(
    ("left", "cause"), [(-36_000, LossCause.CRASHED), (-34_000, LossCause.UNKNOWN), (0, LossCause.UNKNOWN)]
)
def test_a_worker_that_left_when_the_lock_had_nearly_ended_is_not_blamed(left: int, cause: LossCause) -> None:
    """A lock of 60 s that was renewed every 10 s outlives its worker by 50 s."""
    n8n = replace(OLD, lock_length=60_000, renewed_above=0.75, is_n8n=True, left=(WorkerChange("", NOW - HOUR + left),))
    lost = lockless(worker="", processed_at=NOW - 2 * HOUR)
    assert judged(lost, n8n, seen(HOUR)).cause is cause


def test_a_worker_that_went_long_before_is_no_cause() -> None:
    around = replace(OLD, left=(WorkerChange("", NOW - 30 * MINUTE),), watched_since=NOW)
    assert judged(lockless(worker=""), around, seen(MINUTE)).cause is LossCause.UNKNOWN


# -- deployments: when the old ones went, when others came, and whether those are still there

WENT = NOW - 2 * MINUTE


def turnover(
    *came: int, left: tuple[int, ...] = (0, 1_000), names: str = "", host: str = "10.0.0.1", connected: bool = True
) -> Verdict:
    """Workers that came so many ms after the first of two old ones had gone, each by its own connection."""
    new = tuple(WorkerChange(f"{names}-{at}" if names else "", WENT + at, connection=f"{host}:99 {at}") for at in came)
    # A monitor told of the old ones' server, and not yet of the new ones'.
    old = tuple(WorkerChange("", WENT + at, "eu-2", connection=f"10.0.0.1:7 {at}") for at in left)
    here = frozenset(one.connection for one in new) if connected else frozenset[str]()
    around = replace(OLD, left=old, came=new, connections=here | {"another"})
    return judged(lockless(worker="", processed_at=NOW - HOUR), around, seen(100_000))


def test_workers_that_were_replaced_were_replaced_by_a_deployment() -> None:
    found = turnover(4_000, 5_000)
    assert found.cause is LossCause.DEPLOYED
    assert found.cause_evidence == "2 workers disconnected 1 min ago, and 2 replacements are connected."
    assert turnover(-30_000, -29_000).cause is LossCause.DEPLOYED, "new ones first, by a lock's length"
    assert turnover(40_000, 41_000, host="10.0.0.9").cause is LossCause.DEPLOYED, "slowly, but on another machine"
    assert turnover(40_000, 41_000, names="v2").cause is LossCause.DEPLOYED, "slowly, but under other names"


@pytest.mark.parametrize(
    ("found", "cause"),
    [
        (turnover(-45_000, -40_000), LossCause.UNKNOWN),  # their own start, or somebody else's
        (turnover(4_000, 5_000, connected=False), LossCause.UNKNOWN),  # they are not there any more
        (turnover(left=(0, 500)), LossCause.UNKNOWN),  # stopped by somebody, or cut off together
        (turnover(4_000), LossCause.UNKNOWN),  # only one of two is back
        (turnover(4_000, left=(0,)), LossCause.UNKNOWN),  # one by one, a supervisor's restart looks the same
        (turnover(16_000, 17_000), LossCause.UNKNOWN),  # perhaps the same ones, cut off until their locks had ended
    ],
)
def test_what_may_have_been_something_else_is_no_deployment(found: Verdict, cause: LossCause) -> None:
    assert found.cause is cause


def test_who_came_and_went_meanwhile_replaced_nobody() -> None:
    passing = WorkerChange("", WENT + 500, connection="passing")
    old = (WorkerChange("", WENT, connection="a"), replace(passing, at=WENT + 2_000))
    around = replace(OLD, left=old, came=(passing,), connections=frozenset({"another"}))
    assert judged(lockless(worker="", processed_at=NOW - HOUR), around, seen(100_000)).cause is LossCause.CRASHED


# -- still connected


def test_a_lock_lost_beside_a_busy_server_was_starved() -> None:
    busy = replace(WELL, hosts={"mail-1": "eu-2"}, loads={"eu-2": 97.0})
    found = judged(lockless(), busy, SURE)
    assert found.cause is LossCause.STARVED
    assert found.cause_evidence == (
        "worker mail-1 is still connected, but the lock was not renewed: server eu-2 is at 97 %."
    )
    calm = replace(busy, loads={"eu-2": 4.0})
    long_ago = replace(seen(10 * MINUTE, sure=True), cpu=97.0)
    assert judged(lockless(), calm, long_ago).cause_evidence.endswith("server eu-2 was at 97 %.")


def test_who_stays_connected_and_does_not_renew_is_not_explained_by_that_alone() -> None:
    found = judged(lockless(), WELL, SURE)
    assert found.cause is LossCause.UNKNOWN
    assert found.cause_evidence.endswith("its event loop is busy, its process is stopped, or its network is cut.")
    calm = replace(WELL, hosts={"mail-1": "eu-2"}, loads={"eu-2": 4.0})
    found = judged(lockless(), calm, SURE)
    assert found.cause is LossCause.UNKNOWN
    assert found.cause_evidence.endswith("server eu-2 is at 4 % only, so its process hangs or its network is cut.")


def test_unnamed_workers_that_all_stayed_did_not_renew() -> None:
    assert "all workers stayed connected" in judged(lockless(worker=""), OLD, seen(MINUTE)).cause_evidence
    unwatched = replace(OLD, watched_since=NOW - 10)
    assert judged(lockless(worker=""), unwatched, seen(MINUTE)).cause_evidence == ""


def test_a_name_that_has_connected_anew_was_restarted_or_cut_off() -> None:
    around = replace(WELL, came=(WorkerChange("mail-1", NOW - 20_000),), hosts={"mail-1": "eu-2"}, loads={"eu-2": 97.0})
    found = judged(lockless(), around, SURE)
    assert found.cause is LossCause.UNKNOWN
    assert found.cause_evidence == "worker mail-1 has reconnected: it was restarted, or briefly disconnected."


def test_locks_that_did_not_outlive_a_restart_are_told_so() -> None:
    around = replace(WELL, restarted_at=NOW - 40_000, lost_together=12)
    found = judged(lockless(), around, seen(40_000, sure=True))
    assert found.cause is LossCause.RESTARTED
    assert found.cause_evidence == ("Redis restarted 40 s ago (its run id changed); 12 locks were lost with it.")
    later = judged(lockless(processed_at=NOW - 30_000), around, seen(40_000, sure=True))
    assert later.cause is not LossCause.RESTARTED


def test_names_from_redis_are_made_fit_for_a_screen() -> None:
    around = replace(WELL, names=frozenset({"mail-2", "mail-9"}), left=(WorkerChange("a\udcff", NOW - MINUTE),))
    found = judged(lockless(worker="a\udcff"), replace(around, workers=0, names=frozenset()), seen(MINUTE, sure=True))
    found.cause_evidence.encode()
    found.why.encode()


# -- malformed

BREAKS = "Its data violates the schema of its queue: data.to must be string."


@pytest.mark.parametrize(
    ("job", "around", "behind", "suggests"),
    [
        (row(), WELL, VerdictKind.RUNNING, None),
        (row(lock=JobLock("w:1", 9_000)), WELL, VerdictKind.LATE, None),
        (row(lock=JobLock("w:1", 9_000), worker="gone"), WELL, VerdictKind.WORKER_LOST, Action.RELEASE),
        (lockless(), WELL, VerdictKind.ORPHAN, Action.FAIL),
        (lockless(), EMPTY, VerdictKind.ABANDONED, Action.FAIL),
        (lockless(), OLD, VerdictKind.UNLOCKED, None),
        (row(lock_known=False), WELL, VerdictKind.UNKNOWN, None),
    ],
)
def test_bad_data_wins_and_the_lock_is_still_told(
    job: JobRow, around: VerdictContext, behind: VerdictKind, suggests: Action | None
) -> None:
    plain, found = judged(job, around, SURE), judged(job, around, SURE, breaks=BREAKS)
    assert (found.kind, found.behind, found.of_lock, found.suggests) == (
        VerdictKind.MALFORMED,
        behind,
        behind,
        suggests,
    )
    assert found.evidence == (BREAKS, *plain.evidence)
    assert found.fate.startswith(plain.fate)
    assert found.fate.endswith("will probably fail on it.")
    assert found.urgency >= max(plain.urgency, VerdictKind.MALFORMED.urgency)
    assert found.needs_a_person


def test_a_quarantined_job_with_bad_data_is_still_quarantine() -> None:
    found = judged(lockless(), WELL, SURE, orphaned=2, breaks=BREAKS)
    assert (found.kind, found.is_quarantined, found.suggests) == (VerdictKind.MALFORMED, True, Action.FAIL)


def test_a_ghost_has_no_data_to_be_bad() -> None:
    assert judged(lockless(missing=True), breaks=BREAKS).kind is VerdictKind.MISSING_DATA
