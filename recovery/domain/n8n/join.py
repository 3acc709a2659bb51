"""Joins jobs with executions while they are read: contradictions are kept as pairs, everything else is only counted.

1. All jobs are known first. 2. Executions that have not ended are streamed through. 3. Those that live jobs name and
that were not among them follow: they have ended, or are gone. 4. Last come the sub-workflows, when it is known which
executions are alive.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from recovery.domain.identifiers import JobRef
from recovery.domain.n8n import rules as n8n_rules
from recovery.domain.n8n.comparison import MATCHING_LIMIT, JobExecutionPair
from recovery.domain.n8n.comparison_context import ComparisonContext
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.mismatches import MismatchKind

SUSPECT_LIMIT = 20_000  # contradictions kept for the second reading: some 10 MB
_SUB_LIMIT = 20_000  # unfinished sub-workflows: each is kept in memory until the end
_DEAD = (MismatchKind.NO_JOB, MismatchKind.ORPHANED)
GENERATIONS = 5  # sub-workflows that started one another, looked up from the lowest


@dataclass(frozen=True, slots=True)
class ParentExecutions:
    """Executions that started sub-workflows. `parents`: ids of the parents by their children; `found`: parents by id;
    `emptied`: parents that ended with an error and of which n8n has kept nothing, as after a lost job.
    """

    parents: Mapping[str, str] = field(default_factory=dict)
    found: Mapping[str, Execution] = field(default_factory=dict)
    emptied: Collection[str] = ()


_NO_FAMILY = ParentExecutions()


class N8nJobs:
    """All jobs of one n8n installation, by job and by execution."""

    def __init__(self, claims: Iterable[N8nJob]) -> None:
        self.by_job: dict[JobRef, N8nJob] = {claim.job: claim for claim in claims}
        self._live: dict[str, list[N8nJob]] = {}
        self._kept: dict[str, N8nJob] = {}
        for claim in self.by_job.values():
            if claim.execution and claim.is_live:
                self._live.setdefault(claim.execution, []).append(claim)
            elif claim.execution:
                self._kept[claim.execution] = claim

    def __len__(self) -> int:
        return len(self.by_job)

    @property
    def unnamed(self) -> int:
        return sum(not claim.execution for claim in self.by_job.values())

    @property
    def executions(self) -> Iterable[str]:
        """Ids of executions that live jobs name."""
        return self._live.keys()

    def live(self, execution: str) -> list[N8nJob]:
        return self._live.get(execution, [])

    def kept(self, execution: str) -> N8nJob | None:
        """Returns a job of this execution that has ended and still exists."""
        return self._kept.get(execution)


class JobExecutionJoin:
    """A comparison of jobs with executions. A suspect is reported only if a second reading shows it too (`again`)."""

    def __init__(self, claims: N8nJobs, around: ComparisonContext) -> None:
        self.claims = claims
        self.around = around
        self.suspects: list[JobExecutionPair] = []
        self.dropped = 0  # contradictions beyond SUSPECT_LIMIT
        self.executions = 0
        self.parked = 0
        self.elsewhere = 0
        self.unsure_parents = 0
        self._active: list[JobExecutionPair] = []
        self._waiting: list[JobExecutionPair] = []
        self._met: set[str] = set()
        self._subs: list[Execution] = []
        self._alive_since: int | None = None  # when the oldest execution that may be alive began

    @property
    def matching(self) -> tuple[JobExecutionPair, ...]:
        """Sample of the pairs that are consistent, active jobs first."""
        return tuple((self._active + self._waiting)[:MATCHING_LIMIT])

    @property
    def unmet(self) -> list[str]:
        """Ids of executions that live jobs name and that were not among the unfinished executions."""
        return [id for id in self.claims.executions if id not in self._met]

    def take(self, executions: Iterable[Execution]) -> None:
        """Takes in some of the executions that have not ended."""
        for execution in executions:
            self.executions += 1
            self.parked += execution.status is ExecutionStatus.WAITING
            claims = self.claims.live(execution.id)
            if claims:
                self._met.add(execution.id)
                self._with(claims, execution)
            else:
                self._alone(execution)

    def take_named(self, ids: Iterable[str], found: Mapping[str, Execution]) -> None:
        """Takes in executions that live jobs name; an id that is not in `found` is not in the database."""
        for id in ids:
            self._met.add(id)
            self._with(self.claims.live(id), found.get(id))

    @property
    def doubtful(self) -> list[str]:
        """Ids of sub-workflows that are not new, and of which a possible parent may be alive."""
        return [
            one.id
            for one in self._subs
            if n8n_rules.mismatch_of_sub_workflow(one, self.around) is not None and self._may_be_alive(one)
        ]

    def settle(self, family: ParentExecutions = _NO_FAMILY) -> None:
        """Decides on the sub-workflows after all was taken in: by their parent, else by what may still be alive."""
        for execution in self._subs:
            is_lost = self._is_parent_lost(execution.id, family)
            if is_lost is False:
                continue
            parent = family.parents.get(execution.id, "") if is_lost else ""
            is_dead = is_lost or not self._may_be_alive(execution)
            finding = n8n_rules.mismatch_of_sub_workflow(execution, self.around, parent) if is_dead else None
            if finding is None:
                self.unsure_parents += 1
            else:
                self._suspect(JobExecutionPair(execution.id, None, execution, finding))

    def _is_parent_lost(self, child: str, family: ParentExecutions) -> bool | None:
        """Returns whether the parent was lost; None when it is not known, because a parent that has ended may have left
        its child running on purpose.
        """
        id = child
        for _ in range(GENERATIONS):
            id = family.parents.get(id, "")
            parent = family.found.get(id)
            if parent is None or not parent.is_there:
                return None
            if parent.status.is_terminal:
                return True if parent.status is ExecutionStatus.CRASHED or id in family.emptied else None
            if not parent.is_sub_workflow:
                return self._is_lost(parent)
        return None

    def _is_lost(self, execution: Execution) -> bool | None:
        """Returns whether an unfinished execution has lost its worker; None when it is not known."""
        claims = self.claims.live(execution.id)
        if claims:
            found = [n8n_rules.mismatch_of_job(claim, execution, self.around) for claim in claims]
            return all(one is not None and one.kind in _DEAD for one in found)
        if execution.has_a_job and execution.status.is_going:
            return (
                n8n_rules.mismatch_of_execution(execution, self.claims.kept(execution.id), self.around) is not None
                or None
            )
        return None if not execution.has_a_job else False

    def _with(self, claims: list[N8nJob], execution: Execution | None) -> None:
        for claim in claims:
            finding = n8n_rules.mismatch_of_job(claim, execution, self.around)
            pair = JobExecutionPair(claim.execution, claim, execution, finding)
            if finding:
                self._suspect(pair)
            else:
                kept = self._active if claim.is_active else self._waiting
                if len(kept) < MATCHING_LIMIT:
                    kept.append(pair)
            if finding is None or finding.kind not in _DEAD:
                began = execution.began_at if execution and execution.status.is_open else None
                self._alive(claim.processed_at if began is None else began)

    def _alone(self, execution: Execution) -> None:
        if execution.is_sub_workflow and execution.status.is_going:
            if len(self._subs) < _SUB_LIMIT:
                self._subs.append(execution)
            else:
                self.unsure_parents += 1
            return
        finding = n8n_rules.mismatch_of_execution(execution, self.claims.kept(execution.id), self.around)
        if finding and finding.kind is MismatchKind.OVERDUE:
            self._alive(execution.began_at)
        if finding:
            self._suspect(JobExecutionPair(execution.id, self.claims.kept(execution.id), execution, finding))
            return
        self.elsewhere += execution.status.is_going and not execution.has_a_job
        self._alive(execution.began_at)

    def _alive(self, began: int | None) -> None:
        if began is not None and (self._alive_since is None or began < self._alive_since):
            self._alive_since = began

    def _may_be_alive(self, child: Execution) -> bool:
        """Returns True if a process that may run this sub-workflow is alive. Its parent began before it: one that is
        unfinished, or one that ended without waiting for it. That one's process was there too, and a worker's
        connection is as old as its process at most.
        """
        began, around = child.began_at, self.around
        if began is None or not around.knows_workers:
            return True
        has_parent = self._alive_since is not None and self._alive_since <= began
        return has_parent or (around.oldest_worker is not None and around.oldest_worker <= began)

    def _suspect(self, pair: JobExecutionPair) -> None:
        if len(self.suspects) < SUSPECT_LIMIT:
            self.suspects.append(pair)
        else:
            self.dropped += 1


def confirm_mismatches(
    suspects: Iterable[JobExecutionPair],
    claims: N8nJobs,
    executions: Mapping[str, Execution],
    around: ComparisonContext,
) -> Iterator[JobExecutionPair]:
    """Yields the suspects that show the same contradiction when both stores are read a second time."""
    for pair in suspects:
        if pair.finding is None:
            continue
        found = _looked(pair, claims, executions.get(pair.id), around)
        if found is not None and found.finding is not None and found.finding.kind is pair.finding.kind:
            yield found


def _looked(
    pair: JobExecutionPair, claims: N8nJobs, execution: Execution | None, around: ComparisonContext
) -> JobExecutionPair | None:
    if pair.claim is not None and pair.claim.is_live:
        claim = claims.by_job.get(pair.claim.job)
        is_same = claim is not None and claim.is_live and claim.execution == pair.id
        finding = n8n_rules.mismatch_of_job(claim, execution, around) if claim is not None and is_same else None
        return JobExecutionPair(pair.id, claim, execution, finding)
    if execution is None or claims.live(pair.id):
        return None
    if execution.is_sub_workflow:
        is_going = execution.is_there and execution.status.is_going
        parent = pair.finding.parent if pair.finding else ""
        finding = n8n_rules.mismatch_of_sub_workflow(execution, around, parent) if is_going else None
        return JobExecutionPair(pair.id, None, execution, finding)
    kept = claims.kept(pair.id)
    return JobExecutionPair(pair.id, kept, execution, n8n_rules.mismatch_of_execution(execution, kept, around))
