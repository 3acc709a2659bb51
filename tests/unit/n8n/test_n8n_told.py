"""n8n's truth table on its way: packed and unpacked, and as lines of the inbox."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.n8n import mismatch_text
from recovery.domain.n8n.comparison import JobExecutionPair, MismatchFinding, N8nComparison, N8nRelease
from recovery.domain.n8n.error_rates import ErrorRate
from recovery.domain.n8n.executions import Execution, ExecutionStatus, status
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord
from recovery.domain.n8n.mismatch_rows import STALE, merge_mismatches
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair
from recovery.domain.stuck.inbox import ROW_LIMIT, StuckInbox, StuckTally
from recovery.domain.stuck.types import LossCause, StuckJob, Verdict, VerdictKind
from recovery.n8n import comparison_store

NOW = 1_800_000_000_000
QUEUE = QueueRef("main", "bull:jobs")
POOL = QueueRef("main", "bull:jobs-heavy")


def execution(id: str = "51", **facts: object) -> Execution:
    return Execution(id, "wf", "webhook", ExecutionStatus.RUNNING, started_at=NOW - 90_000, **facts)  # type: ignore[arg-type]


def claim(id: str = "1", queue: QueueRef = QUEUE, **facts: object) -> N8nJob:
    known = {"state": JobState.ACTIVE, "execution": "51", "lock": None, "processed_at": NOW - 90_000} | facts
    return N8nJob(queue.job(id), **known)  # type: ignore[arg-type]


def finding(kind: MismatchKind = MismatchKind.NO_JOB) -> MismatchFinding:
    return MismatchFinding(
        kind, MismatchRepair.MARK, NOW - 60_000, ("Execution 51 is running.", "No job."), "Nothing happens."
    )


def truth(*pairs: JobExecutionPair, more: int = 0, **facts: object) -> N8nComparison:
    counts: dict[MismatchKind, int] = {}
    for pair in pairs:
        if pair.finding:
            counts[pair.finding.kind] = counts.get(pair.finding.kind, 0) + 1 + more
    known = {"checked_at": NOW, "pairs": pairs, "counts": counts} | facts
    return N8nComparison("n8n", QUEUE, **known)  # type: ignore[arg-type]


ALONE = JobExecutionPair("51", None, execution(), finding(), "Invoices")
ORPHAN = JobExecutionPair("51", claim(), execution(), finding(MismatchKind.ORPHANED), "Invoices")


def test_a_table_is_unpacked_as_it_was_packed() -> None:
    odd = decode_name(b"\xff\x00:job")
    held = claim(odd, POOL, lock=JobLock("tok", 30_000), holder="10.0.0.7:1", state=JobState.ACTIVE, workflow="<b>")
    told = truth(
        ALONE,
        JobExecutionPair(
            "52", held, execution("52", is_deleted=True), finding(MismatchKind.DELETED), "\u202e</script>"
        ),
        matching=(
            JobExecutionPair("53", claim("3", state=JobState.WAITING), execution("53")),
            JobExecutionPair("", claim("4", execution="")),
        ),
        release=N8nRelease.TWO,
        young={"a b c": NOW},
        notes=("One.",),
        took=7,
        error_rates=(ErrorRate("wf", "\u202e</script>", 3, 4),),
    )
    assert comparison_store.decode(comparison_store.encode([told, truth(fault="away")])) == (told, truth(fault="away"))


@pytest.mark.parametrize("packed", [b"", b"x", comparison_store.encode([])[:-3]], ids=["nothing", "garbage", "cut"])
def test_what_nobody_of_this_version_packed_is_none(packed: bytes) -> None:
    assert comparison_store.decode(packed) == ()


@pytest.mark.parametrize(
    ("written", "finished", "stopped", "found"),
    [
        ("running", False, False, ExecutionStatus.RUNNING),
        ("canceled", False, True, ExecutionStatus.CANCELED),
        (None, True, True, ExecutionStatus.SUCCESS),
        (None, False, True, ExecutionStatus.ERROR),
        (None, False, False, ExecutionStatus.UNKNOWN),
        ("napping", False, False, ExecutionStatus.STRANGE),
        ("strange", False, False, ExecutionStatus.STRANGE),
    ],
    ids=str,
)
def test_a_status_is_one_of_n8ns_own_or_strange(
    written: str, finished: bool, stopped: bool, found: ExecutionStatus
) -> None:
    assert status(written, is_finished=finished, has_stopped=stopped) is found


def test_nothing_is_said_of_a_strange_status() -> None:
    strange = ExecutionStatus.STRANGE
    assert [strange.is_open, strange.is_terminal, strange.is_going] == [False] * 3


def inbox(*rows: StuckJob) -> StuckInbox:
    tallies = tuple(StuckTally(row.job.queue, {row.verdict.kind: 1}, 1, 1, checked_at=NOW) for row in rows)
    return StuckInbox(NOW, rows, tallies)


def abandoned(id: str = "1") -> StuckJob:
    ref = QUEUE.job(id)
    verdict = Verdict(VerdictKind.ABANDONED, ("It has no lock.",), fate="Nothing happens.")
    return StuckJob(ref, "job", verdict, NOW - 90_000, row=JobRow(ref, JobState.ACTIVE))


def test_an_execution_without_a_job_is_a_line_of_its_own() -> None:
    found = merge_mismatches(inbox(), [truth(ALONE)])
    (line,) = found.rows
    assert (line.has_job, line.execution, line.name, line.verdict.kind) == (False, "51", "Invoices", VerdictKind.N8N)
    assert line.verdict.why.endswith("Execution 51 is running. No job.")
    assert (found.people, found.stuck, found.counts) == (1, 1, {VerdictKind.N8N: 1})


def test_a_job_that_is_listed_already_keeps_its_line_and_learns_of_its_execution() -> None:
    found = merge_mismatches(inbox(abandoned()), [truth(ORPHAN)])
    (line,) = found.rows
    assert (line.verdict.kind, line.execution) == (VerdictKind.ABANDONED, "51")
    assert line.verdict.evidence == ("It has no lock.", "Execution 51 is running.")
    assert found.counts == {VerdictKind.ABANDONED: 1}


def test_mismatches_of_a_pool_count_in_its_queue_and_unlisted_ones_in_the_main_one() -> None:
    pooled = JobExecutionPair(
        "52", claim("9", POOL, state=JobState.WAITING), execution("52"), finding(MismatchKind.LEFT)
    )
    found = merge_mismatches(inbox(), [truth(ALONE, pooled, more=3)])
    assert {tally.queue: tally.kinds[VerdictKind.N8N] for tally in found.queues} == {QUEUE: 7, POOL: 1}


def test_what_is_more_urgent_stands_before_it() -> None:
    found = merge_mismatches(inbox(abandoned()), [truth(ALONE)])
    assert [line.verdict.kind for line in found.rows] == [VerdictKind.ABANDONED, VerdictKind.N8N]


@pytest.mark.parametrize(
    "facts", [{"fault": "The database is away."}, {"checked_at": NOW - STALE - 1}], ids=["fault", "old"]
)
def test_what_could_not_be_looked_at_or_is_old_is_no_line(facts: dict[str, object]) -> None:
    assert merge_mismatches(inbox(), [replace(truth(ALONE), **facts)]) == inbox()  # type: ignore[arg-type]


def test_the_inbox_stays_within_its_limit_and_all_are_counted() -> None:
    pairs = [JobExecutionPair(str(id), None, execution(str(id)), finding()) for id in range(1, ROW_LIMIT + 6)]
    found = merge_mismatches(inbox(abandoned()), [truth(*pairs)])
    assert (len(found.rows), found.stuck) == (ROW_LIMIT, ROW_LIMIT + 6)


def test_what_could_not_be_compared_is_no_all_clear() -> None:
    fault = "The jobs and executions of n8n could not be compared: The database is away."
    assert merge_mismatches(inbox(), [truth(fault="The database is away.")], ["n8n"]).faults == (fault,)
    assert merge_mismatches(inbox(), [truth(checked_at=NOW - STALE - 1)], ["n8n"]).faults == (
        "The jobs and executions of n8n were last compared 3 min ago.",
    )
    assert merge_mismatches(inbox(), [], ["n8n"]).faults == (
        "The jobs and executions of n8n have not been compared yet.",
    )
    assert merge_mismatches(inbox(), [truth()], ["n8n"]).faults == ()


LOST = LostExecutionRecord(
    7, "n8n", "51", "wf", "", "webhook", QUEUE.job("12"), VerdictKind.ORPHAN, NOW - 180_000, LostExecutionOutcome.LOST,
    started_at=NOW - 90_000, worker="worker-a", cause="crashed",
)  # fmt: skip


def test_the_loss_of_its_worker_goes_on_from_the_jobs_incident_to_the_execution() -> None:
    told = mismatch_text.describe_loss(ALONE, LOST, NOW)
    assert told.finding is not None
    assert told.finding.evidence[-1] == "Its job 12 lost its worker worker-a 3 min ago."
    (row,) = merge_mismatches(StuckInbox(NOW), [truth(told)]).rows
    assert row.verdict.cause is LossCause.CRASHED
    assert comparison_store.decode(comparison_store.encode([truth(told)])) == (truth(told),)


@pytest.mark.parametrize(
    ("pair", "loss"),
    [
        (ALONE, None),
        (ALONE, replace(LOST, started_at=NOW - 3_600_000)),  # an execution of an older database
        (replace(ALONE, finding=finding(MismatchKind.PAUSED)), LOST),
        (replace(ALONE, execution=None), LOST),
    ],
)
def test_what_did_not_come_of_that_loss_has_nothing_of_it(
    pair: JobExecutionPair, loss: LostExecutionRecord | None
) -> None:
    assert mismatch_text.describe_loss(pair, loss, NOW) == pair


def test_a_cause_that_this_version_does_not_know_is_unknown() -> None:
    told = mismatch_text.describe_loss(ALONE, replace(LOST, cause="of a newer version"), NOW)
    (row,) = merge_mismatches(StuckInbox(NOW), [truth(told)]).rows
    assert row.verdict.cause is LossCause.UNKNOWN
