"""Checks that the audit's index by job matches the bodies of the entries: its rows are no part of the hash chain.

The page shows outcomes from the index. So verification rebuilds its rows from the bodies of intents and outcomes,
as actions/audit/audit_log.py writes them, and compares.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from django.db.models import Exists, OuterRef

from recovery.domain.actions.types import Outcome
from recovery.domain.audit.hash_chain import job_key
from recovery.models import AuditEntry, AuditJob
from recovery.reads.audit.chain_entries import AuditChainEntry, entry_of_row

AT_ONCE = 100  # entries compared together
JOBS_AT_ONCE = 10_000  # or as many jobs of intents: some MB
LISTED = 50  # reported entries that have index rows but do not exist
_LOOKS = 3  # an outcome may be written between two reads

AuditIndexRow = tuple[str, str, str, str]  # deployment, base, job, outcome
AuditIndexFinding = tuple[int, str]  # number of an entry, and what is wrong with its rows


class AuditIndexCheck:
    """Takes the entries of the chain in their order and reports those whose index rows are wrong."""

    def __init__(self) -> None:
        self._entries: list[AuditChainEntry] = []
        self._jobs = 0

    def look(self, entry: AuditChainEntry) -> Iterator[AuditIndexFinding]:
        self._entries.append(entry)
        self._jobs += len(jobs) if isinstance(jobs := entry.body.get("jobs"), list) else 0
        if len(self._entries) >= AT_ONCE or self._jobs >= JOBS_AT_ONCE:
            yield from self.flush()

    def flush(self) -> Iterator[AuditIndexFinding]:
        """Compares the entries taken since the last call."""
        entries, self._entries, self._jobs = self._entries, [], 0
        for _ in range(_LOOKS):
            wrong = _wrong(entries) if entries else set()
            entries = [entry for entry in entries if entry.number in wrong]
        for entry in entries:
            yield entry.number, "The index by job does not match this entry and its outcome."

    def strays(self) -> Iterator[AuditIndexFinding]:
        """Reports index rows of entries that do not exist; one query over the whole index, made at the end."""
        lost = AuditJob.objects.filter(~Exists(AuditEntry.objects.filter(pk=OuterRef("entry_id"))))
        for number in lost.order_by("entry_id").values_list("entry_id", flat=True).distinct()[:LISTED]:
            yield number, "The index by job lists jobs of this entry, but the entry does not exist."


def expected(intent: AuditChainEntry, outcomes: Sequence[AuditChainEntry]) -> Counter[AuditIndexRow]:
    """Returns the index rows that an intent should have after its outcomes, applied in their order."""
    jobs = intent.body.get("jobs")
    listed = [one.get("job", "") for one in jobs if isinstance(one, dict)] if isinstance(jobs, list) else []
    rows: list[list[str]] = [[key, ""] for key in dict.fromkeys(map(_key, listed or [""]))]
    for outcome in outcomes:
        came_to = _outcomes(outcome)
        _settle(rows, came_to)
        if jobs is None:
            found = dict.fromkeys(_key(id) for id in came_to if id)
            rows += [[key, Outcome.DONE.value] for key in found]
    return Counter((intent.link.deployment, intent.link.base, key, outcome) for key, outcome in rows)


def _settle(rows: Sequence[list[str]], outcomes: dict[str, str]) -> None:
    """Applies outcomes as `actions.audit` does: writes the most common one to all rows, then each other to its own."""
    for place, (value, _) in enumerate(Counter(outcomes.values()).most_common()):
        keys = {_key(id) for id, came_to in outcomes.items() if came_to == value}
        for row in rows:
            if not place or row[0] in keys:
                row[1] = value


def _outcomes(outcome: AuditChainEntry) -> dict[str, str]:
    listed = outcome.body.get("jobs")
    found = (one for one in listed if isinstance(one, dict)) if isinstance(listed, list) else ()
    return {str(one.get("job", "")): str(one.get("outcome", "")) for one in found}


def _key(id: object) -> str:
    return job_key(str(id))


def _wrong(entries: Sequence[AuditChainEntry]) -> set[int]:
    """Returns the entries whose rows differ from the expected ones. An outcome and its rows are written together."""
    outcomes = _outcomes_of(entries)
    rows: dict[int, Counter[AuditIndexRow]] = defaultdict(Counter)
    found = AuditJob.objects.filter(entry_id__in=[entry.number for entry in entries])
    for number, *row in found.values_list("entry_id", "deployment", "base", "job", "outcome").iterator():
        rows[number][row[0], row[1], row[2], row[3]] += 1
    return {entry.number for entry in entries if rows[entry.number] != _wanted(entry, outcomes[entry.number])}


def _wanted(entry: AuditChainEntry, outcomes: Sequence[AuditChainEntry]) -> Counter[AuditIndexRow]:
    """Returns the expected rows of an entry; only intents have any."""
    return expected(entry, outcomes) if entry.link.phase == "intent" else Counter()


def _outcomes_of(entries: Sequence[AuditChainEntry]) -> dict[int, list[AuditChainEntry]]:
    found: dict[int, list[AuditChainEntry]] = defaultdict(list)
    intents = [entry.number for entry in entries if entry.link.phase == "intent"]
    for row in AuditEntry.objects.filter(intent__in=intents, phase="outcome").order_by("number"):
        found[row.intent or 0].append(entry_of_row(row))
    return found
