"""Reads the audit: actions with their outcomes, newest first, by filters and by job.

A row is an intent with its outcome, or a note. A page of rows never reads the bodies, which may hold 500 jobs each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Exists, Min, OuterRef, Q, QuerySet
from django.db.models.aggregates import Count

from recovery.domain.actions.types import Action, Outcome
from recovery.domain.audit import former_names
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import JobRef, QueueRef, unslug
from recovery.errors import Missing
from recovery.models import AuditEntry, AuditJob
from recovery.reads.audit.chain_entries import AuditChainEntry, entry_of_row, queue_of
from recovery.reads.audit.export import CONTENT_TYPES, FORMATS, export
from recovery.reads.audit.verification import (
    HEADS_LIMIT,
    AuditChainHead,
    AuditChainHeads,
    AuditFinding,
    AuditVerification,
    NotAHead,
    compare,
    head,
    kept_heads,
    verify,
)

__all__ = [
    "CONTENT_TYPES",
    "FORMATS",
    "HEADS_LIMIT",
    "AuditActionDetail",
    "AuditChainEntry",
    "AuditChainHead",
    "AuditChainHeads",
    "AuditFilter",
    "AuditFinding",
    "AuditListing",
    "AuditRow",
    "AuditVerification",
    "AuditedJob",
    "CompletedAction",
    "NotAHead",
    "actions_on_job",
    "actors",
    "compare",
    "done_since",
    "entries",
    "entry",
    "export",
    "head",
    "kept_heads",
    "load_entry",
    "verify",
]

SIZES = (50, 100, 200)
OF_JOB = 50  # entries on a job's page
CLOCKS_MS = 2_000  # how far the clocks of the host that changes jobs and the host that reads them may differ
ADDED_MS = 10_000  # how far the clock of a job's producer may be ahead of ours
OPEN_MS = 60_000  # how long an intent without an outcome is in progress; after that its outcome is unknown
_STAYING = frozenset({Action.RELEASE, Action.CANCEL})  # the job is active afterwards as before
_OF_QUEUE = job_key("")  # stands for the queue itself in the index by job
_NUMBER_DIGITS = 18


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filter of the audit page; an empty field matches anything. `since` and `until` in ms, the end not included."""

    actor: str = ""
    act: str = ""
    queue: QueueRef | None = None
    deployment: str = ""
    job: str = ""
    outcome: str = ""  # an Outcome; "unknown" finds intents without an outcome too
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class AuditRow:
    """Row of the page: an action or a note. `tally` counts jobs by outcome; `outcome` is the outcome entry's number."""

    number: int
    at: int
    phase: str
    actor_kind: str
    actor: str
    role: str
    address: str
    act: str
    queue: QueueRef | None
    reason: str
    outcome: int | None = None
    ended_at: int | None = None
    tally: Mapping[str, int] = field(default_factory=dict)
    job: str | None = None  # the only job of the action; None: several, or the queue itself
    is_on_queue: bool = False
    came_to: str = ""  # outcome of an action on the queue itself

    @property
    def count(self) -> int:
        return sum(self.tally.values())

    def status(self, now: int) -> str:
        """Returns one word: recorded, in progress, unknown; else the outcome, or "mixed"."""
        if self.phase == "note":
            return "recorded"
        if self.outcome is None:
            return "in progress" if now - self.at < OPEN_MS else Outcome.UNKNOWN.value
        found = {self.came_to} if self.is_on_queue and self.came_to else set(self.tally)
        return found.pop() if len(found) == 1 else "mixed" if found else Outcome.UNKNOWN.value


@dataclass(frozen=True, slots=True)
class AuditListing:
    lines: tuple[AuditRow, ...]
    next: str = ""


@dataclass(frozen=True, slots=True)
class AuditedJob:
    """Job of an action: its state before, its outcome, and its state right after."""

    id: str
    outcome: str = ""  # "": not known
    why: str = ""
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    verdict: Mapping[str, Any] = field(default_factory=dict)
    affected: tuple[Mapping[str, Any], ...] = ()  # other jobs that changed with it, the first of them
    affected_total: int = 0
    was_kept: bool = False
    digest: str = ""  # of its undo copy; "" where an earlier version kept it


@dataclass(frozen=True, slots=True)
class CompletedAction:
    """Action that was done to a job, with the number of its audit entry."""

    number: int
    at: int
    act: Action
    actor: str


@dataclass(frozen=True, slots=True)
class AuditActionDetail:
    """Action in full. `jobs` has its jobs, in their order; the queue itself has the id ""."""

    line: AuditRow
    entry: AuditChainEntry
    outcome: AuditChainEntry | None
    options: Mapping[str, Any]
    jobs: tuple[AuditedJob, ...]
    undo: str = ""  # why some of it was not kept


def entries(wanted: AuditFilter = AuditFilter(), cursor: str = "", size: int = SIZES[0]) -> AuditListing:
    """Returns one page of the audit, newest first. An invalid cursor counts as the start."""
    size = max(1, min(size, max(SIZES)))
    found = _filtered(wanted)
    if cursor.isascii() and cursor.isdigit() and len(cursor) <= _NUMBER_DIGITS:
        found = found.filter(number__lt=int(cursor))
    rows = list(found.defer("body").order_by("-number")[: size + 1])
    lines = _lines(rows[:size])
    return AuditListing(lines, str(lines[-1].number) if len(rows) > size else "")


def actions_on_job(ref: JobRef, size: int = OF_JOB, *, added_at: int | None = None) -> tuple[AuditRow, ...]:
    """Returns the newest actions on this job, without those before `added_at`: they concern an older job of its id."""
    since = None if added_at is None else added_at - ADDED_MS
    return entries(AuditFilter(queue=ref.queue, job=ref.id, since=since), size=size).lines


def done_since(looked_at: int, jobs: Iterable[JobRef]) -> dict[JobRef, CompletedAction]:
    """Returns the newest action done to each of these jobs since they were read; one query."""
    found: dict[JobRef, CompletedAction] = {}
    wanted = {(job.queue.deployment, job.queue.slug, job_key(job.id)): job for job in jobs}
    if not wanted:
        return found
    keys: dict[tuple[str, str], list[str]] = defaultdict(list)
    for deployment, base, key in wanted:
        keys[deployment, base].append(key)
    mine = reduce(or_, (Q(deployment=where[0], base=where[1], job__in=those) for where, those in keys.items()))
    done = AuditJob.objects.filter(mine, outcome=Outcome.DONE, entry__at__gte=looked_at - CLOCKS_MS)
    for row in done.select_related("entry").defer("entry__body").order_by("entry_id"):
        # A job that stays in its list may have been read after the action, and is then shown as it was read.
        if row.entry.act not in _STAYING or row.entry.at >= looked_at:
            job = wanted[row.deployment, row.base, row.job]
            act = Action(former_names.present(row.entry.act, former_names.ACTS))
            found[job] = CompletedAction(row.entry_id, row.entry.at, act, row.entry.actor)
    return found


def entry(number: int) -> AuditActionDetail:
    """Loads the action with this entry number, or with this number of its outcome; raises Missing."""
    found = load_entry(number)
    if found.intent is not None:
        found = load_entry(found.intent)
    (line,) = _lines([AuditEntry.objects.defer("body").get(number=found.number)])
    outcome = load_entry(line.outcome) if line.outcome else None
    told = outcome.body if outcome else {}
    return AuditActionDetail(
        line, found, outcome, found.body.get("options", {}), _fates(found.body, told), told.get("undo", "")
    )


def load_entry(number: int) -> AuditChainEntry:
    """Loads one entry as it is stored; raises Missing."""
    row = AuditEntry.objects.filter(number=number).first()
    if row is None:
        raise Missing(f"There is no entry #{number} in the audit.")
    return entry_of_row(row)


def actors(size: int = 200) -> tuple[str, ...]:
    """Lists the actors that the audit names, for the filter's list."""
    found = AuditEntry.objects.order_by("actor").values_list("actor_kind", "actor").distinct()
    return tuple(dict.fromkeys(_actor(kind, name) for kind, name in found[:size]))


def _filtered(wanted: AuditFilter) -> QuerySet[AuditEntry]:
    found = AuditEntry.objects.exclude(phase="outcome")
    plainly: dict[str, Any] = {"at__gte": wanted.since, "at__lt": wanted.until}
    if wanted.act:
        plainly["act__in"] = former_names.spellings(wanted.act, former_names.ACTS)
    deployment = wanted.queue.deployment if wanted.queue else wanted.deployment
    plainly |= {"deployment": deployment, "base": wanted.queue.slug if wanted.queue else ""}
    found = found.filter(**{name: value for name, value in plainly.items() if value not in (None, "")})
    if wanted.actor:
        found = found.filter(_by(wanted.actor))
    by_job: dict[str, Any] = {"job": job_key(wanted.job)} if wanted.job else {}
    if wanted.outcome:
        by_job["outcome__in"] = ["", wanted.outcome] if wanted.outcome == Outcome.UNKNOWN else [wanted.outcome]
    if by_job:
        listed = AuditJob.objects.filter(entry=OuterRef("pk"), **by_job)
        if wanted.job:  # by the index that begins with the queue
            listed = listed.filter(deployment=OuterRef("deployment"), base=OuterRef("base"))
        found = found.filter(Exists(listed))
    return found


def _by(actor: str) -> Q:
    """Selects entries of this actor; for a scanner that was renamed, under its former names too."""
    names = former_names.spellings(actor, former_names.SCANNERS)
    return Q(actor=actor) | Q(actor_kind="scanner", actor__in=names) if len(names) > 1 else Q(actor=actor)


def _actor(kind: str, name: str) -> str:
    """Returns an actor's present name: scanners were renamed, names of people stay as they are."""
    return former_names.present(name, former_names.SCANNERS) if kind == "scanner" else name


def _lines(rows: Sequence[AuditEntry]) -> tuple[AuditRow, ...]:
    """Builds rows of the audit page with two more queries for all of them: outcomes, and counted jobs."""
    numbers = [row.number for row in rows]
    ended: dict[int | None, tuple[int, int]] = {
        intent: (number, at)
        for intent, number, at in AuditEntry.objects.filter(intent__in=numbers, phase="outcome")
        .order_by("-number")  # the first outcome counts
        .values_list("intent", "number", "at")
    }
    tallies: dict[int, Counter[str]] = defaultdict(Counter)
    only: dict[int, str] = {}
    whole: dict[int, str] = {}
    for number, outcome, count, job, queue in (
        AuditJob.objects.filter(entry_id__in=numbers)
        .values("entry_id", "outcome")
        .annotate(
            count=Count("id", filter=~Q(job=_OF_QUEUE)), first=Min("job"), on=Count("id", filter=Q(job=_OF_QUEUE))
        )
        .values_list("entry_id", "outcome", "count", "first", "on")
    ):
        if count:
            tallies[number][outcome or Outcome.UNKNOWN.value] += count
            only[number] = job
        if queue:
            whole[number] = outcome
    return tuple(_line(row, ended.get(row.number), tallies[row.number], only, whole) for row in rows)


def _line(
    row: AuditEntry,
    ended: tuple[int, int] | None,
    tally: Counter[str],
    only: Mapping[int, str],
    whole: Mapping[int, str],
) -> AuditRow:
    outcome, at = ended or (None, None)
    return AuditRow(
        number=row.number,
        at=row.at,
        phase=row.phase,
        actor_kind=row.actor_kind,
        actor=_actor(row.actor_kind, row.actor),
        role=row.role,
        address=row.address,
        act=former_names.present(row.act, former_names.ACTS),
        queue=queue_of(row.deployment, row.base),
        reason=row.reason,
        outcome=outcome,
        ended_at=at,
        tally=dict(tally),
        job=_name(only[row.number]) if tally.total() == 1 and row.number not in whole else None,
        is_on_queue=row.number in whole,
        came_to=whole.get(row.number, ""),
    )


def _name(key: str) -> str | None:
    """Returns the job id behind a key of the index; None if the id was too long for the index."""
    try:
        return unslug(key)
    except ValueError:
        return None


def _fates(intent: Mapping[str, Any], outcome: Mapping[str, Any]) -> tuple[AuditedJob, ...]:
    """Merges the jobs of both bodies: the jobs that a clean removed stand in its outcome only."""
    before = {one["job"]: one for one in _listed(intent)}
    after = {one["job"]: one for one in _listed(outcome)}
    return tuple(_fate(id, before.get(id, {}), after.get(id, {})) for id in {**before, **after})


def _listed(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the jobs that the entry describes; the entry of a bulk run over named jobs holds only their number."""
    jobs = body.get("jobs")
    if not isinstance(jobs, list):
        return []
    return [one for one in jobs if isinstance(one, dict) and isinstance(one.get("job"), str)]


def _fate(id: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> AuditedJob:
    kept = after.get("kept")
    others = after if after.get("outcome") == Outcome.DONE else before  # else the intent's prediction
    return AuditedJob(
        id,
        after.get("outcome", ""),
        after.get("why", ""),
        before.get("before", {}),
        after.get("after", {}),
        before.get("verdict", {}),
        tuple(others.get("affected", ())),
        others.get("affected_total", 0),
        bool(kept),
        kept if isinstance(kept, str) else "",
    )
