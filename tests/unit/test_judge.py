"""What may be done to which job, and what stands against it: every line of the table."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.actions import catalog, judge
from recovery.actions.catalog import ENTRIES
from recovery.actions.judge import Case
from recovery.domain.acting import Act, Judgement, Options, Outcome, Seen
from recovery.domain.counts import Flavour, Library
from recovery.domain.jobs import JobRow, Lock, State
from recovery.domain.refs import QueueRef
from recovery.domain.verdicts import Kind, Verdict

MAIL = QueueRef("main", "bull:mail")
N8N = QueueRef("main", "bull:jobs")
NEW = Flavour(Library.BULLMQ, 5, "5.81.5")
OLD = Flavour(Library.BULLMQ, 4, "4.18.3")
BULL = Flavour(Library.BULL, 4, "4.16.5")
TABLE = Flavour(Library.TABLE)
HELD = Lock("worker:1", 20_000)


def row(state: State = State.ACTIVE, **facts: Any) -> JobRow:
    return JobRow(MAIL.job("1"), state, **facts)


def verdict(kind: Kind, **facts: Any) -> Verdict:
    return Verdict(kind, **facts)


def ask(
    act: Act,
    job: JobRow | None,
    said: Verdict | None = None,
    *,
    queue: QueueRef = MAIL,
    flavour: Flavour = NEW,
    seen: Seen | None = None,
    **options: Any,
) -> Judgement:
    return judge.judge(act, queue, flavour, Options(**options), Case("1", job, said, seen))


ORPHAN = verdict(Kind.ORPHAN)


def test_a_job_that_is_gone_is_missing() -> None:
    found = ask(Act.REQUEUE, None)
    assert (found.is_allowed, found.outcome) == (False, Outcome.MISSING)


@pytest.mark.parametrize("act", [Act.REQUEUE, Act.FAIL])
@pytest.mark.parametrize("kind", [Kind.ORPHAN, Kind.ABANDONED])
@pytest.mark.parametrize("flavour", [NEW, OLD, BULL])
def test_a_proven_orphan_is_requeued_or_failed(act: Act, kind: Kind, flavour: Flavour) -> None:
    assert ask(act, row(), verdict(kind), flavour=flavour).is_allowed


@pytest.mark.parametrize("act", [Act.REQUEUE, Act.FAIL])
@pytest.mark.parametrize("kind", [Kind.UNLOCKED, Kind.UNKNOWN, Kind.STRAY, Kind.MALFORMED])
def test_what_is_not_proven_is_left_alone_even_by_force(act: Act, kind: Kind) -> None:
    found = ask(act, row(), verdict(kind), flavour=BULL, force=True)
    assert not found.is_allowed
    assert "not yet proof" in found.why


@pytest.mark.parametrize("act", [Act.REQUEUE, Act.FAIL])
def test_without_a_verdict_nothing_is_proven(act: Act) -> None:
    assert not ask(act, row(), None, force=True).is_allowed


@pytest.mark.parametrize("act", [Act.REQUEUE, Act.FAIL])
@pytest.mark.parametrize("kind", list(Kind))
def test_a_locked_job_is_never_requeued_whatever_is_said_of_it(act: Act, kind: Kind) -> None:
    found = ask(act, row(lock=HELD), verdict(kind), force=True, consent=True)
    assert not found.is_allowed
    assert "holds its lock" in found.why


@pytest.mark.parametrize("act", [Act.REQUEUE, Act.FAIL, Act.RELEASE, Act.REMOVE])
def test_a_lock_that_we_may_not_see_may_be_there(act: Act) -> None:
    assert "cannot be read" in ask(act, row(lock_known=False), ORPHAN, force=True).why


@pytest.mark.parametrize(
    ("act", "state"), [(Act.REQUEUE, State.ACTIVE), (Act.RETRY, State.FAILED), (Act.PROMOTE, State.DELAYED)]
)
def test_a_ghost_runs_nowhere(act: Act, state: State) -> None:
    found = ask(act, row(state, missing=True), verdict(Kind.MISSING_DATA))
    assert "Remove it" in found.why
    assert ask(Act.REMOVE, row(state, missing=True), verdict(Kind.MISSING_DATA)).is_allowed


@pytest.mark.parametrize("job", [row(), row(State.FAILED)])
def test_a_quarantined_job_takes_force_to_run_again(job: JobRow) -> None:
    act = Act.REQUEUE if job.state is State.ACTIVE else Act.RETRY
    said = verdict(Kind.ORPHAN, is_quarantined=True, orphaned=2)
    found = ask(act, job, said)
    assert "orphaned 3 times" in found.why
    assert "force" in found.why
    forced = ask(act, job, said, force=True)
    assert forced.is_allowed
    assert "orphaned 3 times" in forced.risk


def test_a_quarantined_job_is_failed_without_force() -> None:
    assert ask(Act.FAIL, row(), verdict(Kind.ORPHAN, is_quarantined=True)).is_allowed


@pytest.mark.parametrize(("act", "state"), [(Act.REQUEUE, State.ACTIVE), (Act.RETRY, State.FAILED)])
def test_malformed_data_takes_force_to_run_again(act: Act, state: State) -> None:
    assert "schema" in ask(act, row(state), verdict(Kind.MALFORMED)).why
    assert ask(act, row(state), verdict(Kind.MALFORMED), force=True).is_allowed


@pytest.mark.parametrize("flavour", [NEW, OLD, BULL])
def test_bad_data_takes_no_proof_away(flavour: Flavour) -> None:
    said = verdict(Kind.MALFORMED, behind=Kind.ORPHAN, suggests=Act.FAIL)
    assert judge.is_proven(said)
    assert ask(Act.FAIL, row(), said, flavour=flavour).is_allowed
    assert "needs force" in ask(Act.REQUEUE, row(), said, flavour=flavour).why
    assert ask(Act.REQUEUE, row(), said, flavour=flavour, force=True).is_allowed
    assert set(catalog.offered(row(), said, flavour)) >= {Act.FAIL, Act.REQUEUE}


@pytest.mark.parametrize("act", [Act.REQUEUE, Act.FAIL])
def test_bad_data_is_no_proof(act: Act) -> None:
    said = verdict(Kind.MALFORMED, behind=Kind.UNLOCKED)
    assert "not yet proof" in ask(act, row(), said, flavour=BULL, force=True).why
    assert not judge.is_proven(said)


@pytest.mark.parametrize("act", [Act.REQUEUE, Act.FAIL])
def test_where_a_job_is_locked_as_it_is_taken_the_scripts_own_look_is_the_proof(act: Act) -> None:
    assert ask(act, row(), verdict(Kind.UNLOCKED), flavour=NEW).is_allowed


def test_n8n_takes_consent_to_run_again_and_force_is_none() -> None:
    found = ask(Act.REQUEUE, row(), ORPHAN, queue=N8N, flavour=BULL, force=True)
    assert "n8n" in found.why
    assert "consent" in found.why
    assert ask(Act.REQUEUE, row(), ORPHAN, queue=N8N, flavour=BULL, consent=True).is_allowed
    assert ask(Act.FAIL, row(), ORPHAN, queue=N8N, flavour=BULL).is_allowed


def test_n8n_is_not_paused() -> None:
    assert "crashed" in judge.judge_queue(Act.PAUSE, N8N, BULL, Options(force=True, consent=True)).why
    assert judge.judge_queue(Act.RESUME, N8N, BULL, Options()).is_allowed
    assert judge.judge_queue(Act.PAUSE, N8N, NEW, Options()).is_allowed


@pytest.mark.parametrize("kind", [Kind.RUNNING, Kind.LATE, Kind.OVERDUE, Kind.UNKNOWN, Kind.STRAY, Kind.MALFORMED])
def test_a_connected_holder_is_released_by_force_and_with_a_warning(kind: Kind) -> None:
    found = ask(Act.RELEASE, row(lock=HELD), verdict(kind))
    assert "run twice" in found.why
    forced = ask(Act.RELEASE, row(lock=HELD), verdict(kind), force=True)
    assert forced.is_allowed
    assert "run twice" in forced.risk


def test_a_holder_that_is_gone_is_released() -> None:
    found = ask(Act.RELEASE, row(lock=HELD), verdict(Kind.WORKER_LOST))
    assert (found.is_allowed, found.risk) == (True, "")


def test_a_lock_without_an_end_is_released() -> None:
    found = ask(Act.RELEASE, row(lock=Lock("worker:1", None)), verdict(Kind.RUNNING))
    assert found.is_allowed
    assert "never expires" in found.risk


def test_what_has_no_lock_is_not_released() -> None:
    assert "no lock" in ask(Act.RELEASE, row(), ORPHAN).why


def test_a_release_that_requeues_runs_again_too() -> None:
    said = verdict(Kind.WORKER_LOST, is_quarantined=True, orphaned=2)
    assert ask(Act.RELEASE, row(lock=HELD), said).is_allowed
    assert not ask(Act.RELEASE, row(lock=HELD), said, requeue=True).is_allowed


@pytest.mark.parametrize("kind", list(Kind))
def test_a_locked_job_is_never_removed(kind: Kind) -> None:
    assert not ask(Act.REMOVE, row(lock=HELD), verdict(kind), force=True).is_allowed


def test_an_active_job_that_may_still_run_is_removed_by_force_only() -> None:
    assert ask(Act.REMOVE, row(), ORPHAN).is_allowed
    assert not ask(Act.REMOVE, row(), verdict(Kind.UNLOCKED), flavour=BULL).is_allowed
    assert ask(Act.REMOVE, row(), verdict(Kind.UNLOCKED), flavour=BULL, force=True).is_allowed


def test_what_nobody_holds_cannot_be_cancelled() -> None:
    assert not ask(Act.CANCEL, row(), ORPHAN).is_allowed
    assert ask(Act.CANCEL, row(lock=HELD), verdict(Kind.RUNNING)).is_allowed


@pytest.mark.parametrize("flavour", [NEW, BULL, TABLE])
def test_a_completed_job_is_retried_only_when_that_is_said(flavour: Flavour) -> None:
    done = row(State.COMPLETED)
    refused = ask(Act.RETRY, done, flavour=flavour, force=True, consent=True)
    assert (refused.is_allowed, refused.outcome) == (False, Outcome.REFUSED)
    assert refused.why == "It has completed: a retry does its work a second time. This needs rerun_completed."
    said = ask(Act.RETRY, done, flavour=flavour, rerun_completed=True)
    assert said.is_allowed
    assert "a second time" in said.risk
    assert ask(Act.RETRY, row(State.FAILED), flavour=flavour).is_allowed


@pytest.mark.parametrize("act", [Act.REQUEUE, Act.FAIL, Act.RELEASE, Act.CANCEL, Act.RETRY, Act.PROMOTE])
@pytest.mark.parametrize("state", list(State))
def test_an_act_is_for_its_states(act: Act, state: State) -> None:
    if state not in ENTRIES[act].states:
        assert not ask(act, row(state), ORPHAN, force=True).is_allowed


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        ({"state": State.WAITING}, "is active now"),
        ({"processed_at": 5}, "started it again"),
        ({"starts": 2}, "started it again"),
        ({"token": "other:1"}, "Another worker"),
    ],
)
def test_what_changed_since_it_was_shown_is_said(facts: dict[str, Any], word: str) -> None:
    seen = Seen(**{"id": "1", "state": State.ACTIVE, "token": "worker:1", **facts})
    assert word in ask(Act.RELEASE, row(lock=HELD), verdict(Kind.WORKER_LOST), seen=seen, force=True).why


# -- the catalog


def test_every_act_is_in_the_catalog() -> None:
    assert set(ENTRIES) == set(Act)
    assert all(entry.label and entry.effect.endswith(".") for entry in ENTRIES.values())


@pytest.mark.parametrize(
    ("job", "said", "acts"),
    [
        (row(), Verdict(Kind.ORPHAN, suggests=Act.REQUEUE), [Act.REQUEUE, Act.FAIL, Act.REMOVE]),
        (row(), Verdict(Kind.ORPHAN, suggests=Act.FAIL), [Act.FAIL, Act.REQUEUE, Act.REMOVE]),
        (row(), verdict(Kind.UNLOCKED), []),
        (row(missing=True), verdict(Kind.MISSING_DATA), [Act.REMOVE]),
        (row(lock=HELD), verdict(Kind.RUNNING), [Act.CANCEL]),
        (row(lock=HELD), verdict(Kind.WORKER_LOST), [Act.RELEASE]),
        (row(lock=Lock("x", None)), verdict(Kind.RUNNING), [Act.RELEASE, Act.CANCEL]),
        (row(State.FAILED), None, [Act.RETRY, Act.REMOVE]),
        (row(State.DELAYED), None, [Act.PROMOTE, Act.REMOVE]),
        (row(State.WAITING), None, [Act.REMOVE]),
    ],
)
def test_the_buttons_fit_the_job(job: JobRow, said: Verdict | None, acts: list[Act]) -> None:
    assert list(catalog.offered(job, said, NEW)) == acts


def test_what_is_offered_would_be_allowed_or_says_what_it_needs() -> None:
    locks = [None, HELD, Lock("x", None)]
    for lock in locks:
        for kind in Kind:
            for state in State:
                job, said = row(state, lock=lock if state is State.ACTIVE else None), verdict(kind)
                for act in catalog.offered(job, said, NEW):
                    allowed = ask(act, job, said)
                    assert allowed.is_allowed or "This needs " in allowed.why, (act, kind, state, lock, allowed.why)


def test_a_read_only_queue_offers_nothing() -> None:
    flavour = NEW._replace(read_only="it is Pro")
    assert catalog.offered(row(State.FAILED), None, flavour) == ()
    assert catalog.on_queue(flavour) == ()


def test_a_mix_of_five_and_six_is_not_paused() -> None:
    mixed = Flavour(Library.BULLMQ, 5, "5.81.5", mixed=True, upto=6)
    assert Act.PAUSE not in catalog.on_queue(mixed)
    assert Act.RESUME not in catalog.on_queue(mixed)
    assert Act.DRAIN in catalog.on_queue(NEW)
