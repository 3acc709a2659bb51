"""What may be done to which job, and what stands against it: every line of the table."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.actions import catalog
from recovery.actions import rules as actions_rules
from recovery.actions.catalog import ENTRIES
from recovery.actions.rules import ActionCandidate
from recovery.domain.actions.types import Action, ActionOptions, ActionPrecheck, ExpectedJob, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.types import Verdict, VerdictKind

MAIL = QueueRef("main", "bull:mail")
N8N = QueueRef("main", "bull:jobs")
NEW = LibraryVersion(QueueLibrary.BULLMQ, 5, "5.81.5")
OLD = LibraryVersion(QueueLibrary.BULLMQ, 4, "4.18.3")
BULL = LibraryVersion(QueueLibrary.BULL, 4, "4.16.5")
TABLE = LibraryVersion(QueueLibrary.TABLE)
HELD = JobLock("worker:1", 20_000)


def row(state: JobState = JobState.ACTIVE, **facts: Any) -> JobRow:
    return JobRow(MAIL.job("1"), state, **facts)


def verdict(kind: VerdictKind, **facts: Any) -> Verdict:
    return Verdict(kind, **facts)


def ask(
    act: Action,
    job: JobRow | None,
    said: Verdict | None = None,
    *,
    queue: QueueRef = MAIL,
    flavour: LibraryVersion = NEW,
    seen: ExpectedJob | None = None,
    **options: Any,
) -> ActionPrecheck:
    return actions_rules.judge(act, queue, flavour, ActionOptions(**options), ActionCandidate("1", job, said, seen))


ORPHAN = verdict(VerdictKind.ORPHAN)


def test_a_job_that_is_gone_is_missing() -> None:
    found = ask(Action.REQUEUE, None)
    assert (found.is_allowed, found.outcome) == (False, Outcome.MISSING)


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
@pytest.mark.parametrize("kind", [VerdictKind.ORPHAN, VerdictKind.ABANDONED])
@pytest.mark.parametrize("flavour", [NEW, OLD, BULL])
def test_a_proven_orphan_is_requeued_or_failed(act: Action, kind: VerdictKind, flavour: LibraryVersion) -> None:
    assert ask(act, row(), verdict(kind), flavour=flavour).is_allowed


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
@pytest.mark.parametrize("kind", [VerdictKind.UNLOCKED, VerdictKind.UNKNOWN, VerdictKind.STRAY, VerdictKind.MALFORMED])
def test_what_is_not_proven_is_left_alone_even_by_force(act: Action, kind: VerdictKind) -> None:
    found = ask(act, row(), verdict(kind), flavour=BULL, force=True)
    assert not found.is_allowed
    assert "not yet proof" in found.why


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
def test_without_a_verdict_nothing_is_proven(act: Action) -> None:
    assert not ask(act, row(), None, force=True).is_allowed


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
@pytest.mark.parametrize("kind", list(VerdictKind))
def test_a_locked_job_is_never_requeued_whatever_is_said_of_it(act: Action, kind: VerdictKind) -> None:
    found = ask(act, row(lock=HELD), verdict(kind), force=True, consent=True)
    assert not found.is_allowed
    assert "holds its lock" in found.why


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL, Action.RELEASE, Action.REMOVE])
def test_a_lock_that_we_may_not_see_may_be_there(act: Action) -> None:
    assert "cannot be read" in ask(act, row(lock_known=False), ORPHAN, force=True).why


@pytest.mark.parametrize(
    ("act", "state"),
    [(Action.REQUEUE, JobState.ACTIVE), (Action.RETRY, JobState.FAILED), (Action.PROMOTE, JobState.DELAYED)],
)
def test_a_ghost_runs_nowhere(act: Action, state: JobState) -> None:
    found = ask(act, row(state, missing=True), verdict(VerdictKind.MISSING_DATA))
    assert "Remove it" in found.why
    assert ask(Action.REMOVE, row(state, missing=True), verdict(VerdictKind.MISSING_DATA)).is_allowed


@pytest.mark.parametrize("job", [row(), row(JobState.FAILED)])
def test_a_quarantined_job_takes_force_to_run_again(job: JobRow) -> None:
    act = Action.REQUEUE if job.state is JobState.ACTIVE else Action.RETRY
    said = verdict(VerdictKind.ORPHAN, is_quarantined=True, orphaned=2)
    found = ask(act, job, said)
    assert "orphaned 3 times" in found.why
    assert "force" in found.why
    forced = ask(act, job, said, force=True)
    assert forced.is_allowed
    assert "orphaned 3 times" in forced.risk


def test_a_quarantined_job_is_failed_without_force() -> None:
    assert ask(Action.FAIL, row(), verdict(VerdictKind.ORPHAN, is_quarantined=True)).is_allowed


@pytest.mark.parametrize(("act", "state"), [(Action.REQUEUE, JobState.ACTIVE), (Action.RETRY, JobState.FAILED)])
def test_malformed_data_takes_force_to_run_again(act: Action, state: JobState) -> None:
    assert "schema" in ask(act, row(state), verdict(VerdictKind.MALFORMED)).why
    assert ask(act, row(state), verdict(VerdictKind.MALFORMED), force=True).is_allowed


@pytest.mark.parametrize("flavour", [NEW, OLD, BULL])
def test_bad_data_takes_no_proof_away(flavour: LibraryVersion) -> None:
    said = verdict(VerdictKind.MALFORMED, behind=VerdictKind.ORPHAN, suggests=Action.FAIL)
    assert actions_rules.is_proven(said)
    assert ask(Action.FAIL, row(), said, flavour=flavour).is_allowed
    assert "needs force" in ask(Action.REQUEUE, row(), said, flavour=flavour).why
    assert ask(Action.REQUEUE, row(), said, flavour=flavour, force=True).is_allowed
    assert set(catalog.offered(row(), said, flavour)) >= {Action.FAIL, Action.REQUEUE}


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
def test_bad_data_is_no_proof(act: Action) -> None:
    said = verdict(VerdictKind.MALFORMED, behind=VerdictKind.UNLOCKED)
    assert "not yet proof" in ask(act, row(), said, flavour=BULL, force=True).why
    assert not actions_rules.is_proven(said)


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
def test_where_a_job_is_locked_as_it_is_taken_the_scripts_own_look_is_the_proof(act: Action) -> None:
    assert ask(act, row(), verdict(VerdictKind.UNLOCKED), flavour=NEW).is_allowed


def test_n8n_takes_consent_to_run_again_and_force_is_none() -> None:
    found = ask(Action.REQUEUE, row(), ORPHAN, queue=N8N, flavour=BULL, force=True)
    assert "n8n" in found.why
    assert "consent" in found.why
    assert ask(Action.REQUEUE, row(), ORPHAN, queue=N8N, flavour=BULL, consent=True).is_allowed
    assert ask(Action.FAIL, row(), ORPHAN, queue=N8N, flavour=BULL).is_allowed


def test_n8n_is_not_paused() -> None:
    assert "crashed" in actions_rules.judge_queue(Action.PAUSE, N8N, BULL, ActionOptions(force=True, consent=True)).why
    assert actions_rules.judge_queue(Action.RESUME, N8N, BULL, ActionOptions()).is_allowed
    assert actions_rules.judge_queue(Action.PAUSE, N8N, NEW, ActionOptions()).is_allowed


@pytest.mark.parametrize(
    "kind",
    [
        VerdictKind.RUNNING,
        VerdictKind.LATE,
        VerdictKind.OVERDUE,
        VerdictKind.UNKNOWN,
        VerdictKind.STRAY,
        VerdictKind.MALFORMED,
    ],
)
def test_a_connected_holder_is_released_by_force_and_with_a_warning(kind: VerdictKind) -> None:
    found = ask(Action.RELEASE, row(lock=HELD), verdict(kind))
    assert "run twice" in found.why
    forced = ask(Action.RELEASE, row(lock=HELD), verdict(kind), force=True)
    assert forced.is_allowed
    assert "run twice" in forced.risk


def test_a_holder_that_is_gone_is_released() -> None:
    found = ask(Action.RELEASE, row(lock=HELD), verdict(VerdictKind.WORKER_LOST))
    assert (found.is_allowed, found.risk) == (True, "")


def test_a_lock_without_an_end_is_released() -> None:
    found = ask(Action.RELEASE, row(lock=JobLock("worker:1", None)), verdict(VerdictKind.RUNNING))
    assert found.is_allowed
    assert "never expires" in found.risk


def test_what_has_no_lock_is_not_released() -> None:
    assert "no lock" in ask(Action.RELEASE, row(), ORPHAN).why


def test_a_release_that_requeues_runs_again_too() -> None:
    said = verdict(VerdictKind.WORKER_LOST, is_quarantined=True, orphaned=2)
    assert ask(Action.RELEASE, row(lock=HELD), said).is_allowed
    assert not ask(Action.RELEASE, row(lock=HELD), said, requeue=True).is_allowed


@pytest.mark.parametrize("kind", list(VerdictKind))
def test_a_locked_job_is_never_removed(kind: VerdictKind) -> None:
    assert not ask(Action.REMOVE, row(lock=HELD), verdict(kind), force=True).is_allowed


def test_an_active_job_that_may_still_run_is_removed_by_force_only() -> None:
    assert ask(Action.REMOVE, row(), ORPHAN).is_allowed
    assert not ask(Action.REMOVE, row(), verdict(VerdictKind.UNLOCKED), flavour=BULL).is_allowed
    assert ask(Action.REMOVE, row(), verdict(VerdictKind.UNLOCKED), flavour=BULL, force=True).is_allowed


def test_what_nobody_holds_cannot_be_cancelled() -> None:
    assert not ask(Action.CANCEL, row(), ORPHAN).is_allowed
    assert ask(Action.CANCEL, row(lock=HELD), verdict(VerdictKind.RUNNING)).is_allowed


@pytest.mark.parametrize("flavour", [NEW, BULL, TABLE])
def test_a_completed_job_is_retried_only_when_that_is_said(flavour: LibraryVersion) -> None:
    done = row(JobState.COMPLETED)
    refused = ask(Action.RETRY, done, flavour=flavour, force=True, consent=True)
    assert (refused.is_allowed, refused.outcome) == (False, Outcome.REFUSED)
    assert refused.why == "It has completed: a retry does its work a second time. This needs rerun_completed."
    said = ask(Action.RETRY, done, flavour=flavour, rerun_completed=True)
    assert said.is_allowed
    assert "a second time" in said.risk
    assert ask(Action.RETRY, row(JobState.FAILED), flavour=flavour).is_allowed


@pytest.mark.parametrize(
    "act", [Action.REQUEUE, Action.FAIL, Action.RELEASE, Action.CANCEL, Action.RETRY, Action.PROMOTE]
)
@pytest.mark.parametrize("state", list(JobState))
def test_an_act_is_for_its_states(act: Action, state: JobState) -> None:
    if state not in ENTRIES[act].states:
        assert not ask(act, row(state), ORPHAN, force=True).is_allowed


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"state": JobState.WAITING}, "is active now"),
        ({"processed_at": 5}, "started it again"),
        ({"starts": 2}, "started it again"),
        ({"token": "other:1"}, "Another worker"),
    ],
)
def test_what_changed_since_it_was_shown_is_said(facts: dict[str, Any], word: str) -> None:
    seen = ExpectedJob(**{"id": "1", "state": JobState.ACTIVE, "token": "worker:1", **facts})
    assert word in ask(Action.RELEASE, row(lock=HELD), verdict(VerdictKind.WORKER_LOST), seen=seen, force=True).why


# -- the catalog


def test_every_act_is_in_the_catalog() -> None:
    assert set(ENTRIES) == set(Action)
    assert all(entry.label and entry.effect.endswith(".") for entry in ENTRIES.values())


@pytest.mark.parametrize(
    ("job", "said", "acts"),
    [
        (row(), Verdict(VerdictKind.ORPHAN, suggests=Action.REQUEUE), [Action.REQUEUE, Action.FAIL, Action.REMOVE]),
        (row(), Verdict(VerdictKind.ORPHAN, suggests=Action.FAIL), [Action.FAIL, Action.REQUEUE, Action.REMOVE]),
        (row(), verdict(VerdictKind.UNLOCKED), []),
        (row(missing=True), verdict(VerdictKind.MISSING_DATA), [Action.REMOVE]),
        (row(lock=HELD), verdict(VerdictKind.RUNNING), [Action.CANCEL]),
        (row(lock=HELD), verdict(VerdictKind.WORKER_LOST), [Action.RELEASE]),
        (row(lock=JobLock("x", None)), verdict(VerdictKind.RUNNING), [Action.RELEASE, Action.CANCEL]),
        (row(JobState.FAILED), None, [Action.RETRY, Action.REMOVE]),
        (row(JobState.DELAYED), None, [Action.PROMOTE, Action.REMOVE]),
        (row(JobState.WAITING), None, [Action.REMOVE]),
    ],
)
def test_the_buttons_fit_the_job(job: JobRow, said: Verdict | None, acts: list[Action]) -> None:
    assert list(catalog.offered(job, said, NEW)) == acts


def test_what_is_offered_would_be_allowed_or_says_what_it_needs() -> None:
    locks = [None, HELD, JobLock("x", None)]
    for lock in locks:
        for kind in VerdictKind:
            for state in JobState:
                job, said = row(state, lock=lock if state is JobState.ACTIVE else None), verdict(kind)
                for act in catalog.offered(job, said, NEW):
                    allowed = ask(act, job, said)
                    assert allowed.is_allowed or "This needs " in allowed.why, (act, kind, state, lock, allowed.why)


def test_a_read_only_queue_offers_nothing() -> None:
    flavour = NEW._replace(read_only="it is Pro")
    assert catalog.offered(row(JobState.FAILED), None, flavour) == ()
    assert catalog.on_queue(flavour) == ()


def test_a_mix_of_five_and_six_is_not_paused() -> None:
    mixed = LibraryVersion(QueueLibrary.BULLMQ, 5, "5.81.5", mixed=True, upto=6)
    assert Action.PAUSE not in catalog.on_queue(mixed)
    assert Action.RESUME not in catalog.on_queue(mixed)
    assert Action.DRAIN in catalog.on_queue(NEW)
