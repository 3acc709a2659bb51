"""Presents the settings of one queue and where each comes from; which actions it allows, and to which role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dashboard.access import Role
from dashboard.templatetags.show import duration
from recovery.actions.catalog import ENTRIES, Entry, effect
from recovery.backends import operator
from recovery.config import Config, Database, Deployment, Table
from recovery.config.values import Thresholds
from recovery.domain import policy_terms
from recovery.domain.acting import Right
from recovery.domain.counts import Flavour, Library
from recovery.domain.inbox import Inbox
from recovery.domain.policies import Resolved
from recovery.domain.policy import Scanner
from recovery.domain.refs import QueueRef, shown
from recovery.domain.surroundings import QUARANTINE_AFTER, QUARANTINE_WINDOW
from recovery.reads import refusals
from recovery.reads.lists import Queue
from recovery.reads.policies import Book

BY_DEFAULT = "default"
BUILT_IN = "built-in default"
_HOUR = 3_600_000
_DEFAULTS = Thresholds()


@dataclass(frozen=True, slots=True)
class Term:
    """One setting. `note` says what it is for; `is_set`: it is configured."""

    name: str
    value: str
    origin: str
    note: str = ""
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class ActTerms:
    """One action. `why`: the reason it is not possible here; empty: it is, for `who`."""

    label: str
    effect: str
    why: str
    who: str
    tone: str


@dataclass(frozen=True, slots=True)
class Duties:
    """Policy of the scanners for a queue. `summary`: a sentence or two; `trouble`: why none acts that should."""

    summary: str
    rest: str
    terms: tuple[policy_terms.Term, ...]
    trouble: tuple[str, ...]


def duties(queue: Queue, config: Config, now: int) -> Duties:
    found = Book.open(config).of(queue.ref)
    mine = scanners_of(queue.flavour)
    others = {scanner.value for scanner in Scanner} - {scanner.value for scanner in mine}
    terms = tuple(term for term in policy_terms.terms(found, now) if term.name not in others)
    closed = _no_change(config.deployment(queue.ref.deployment)) or queue.flavour.read_only
    if closed:
        return Duties("No scanner acts here.", closed, terms, found.withheld)
    return Duties(*_summary(found, mine), terms, found.withheld)


def terms(queue: Queue, config: Config, inbox: Inbox | None) -> tuple[Term, ...]:
    """Returns a queue's settings. `inbox`: the last result of the orphan-watch, with the intervals that it used."""
    ref = queue.ref
    table = config.table(ref.deployment, ref.base)
    return (
        *(_signs(table) if table else (_stalled(ref, config, inbox),)),
        _overdue(ref, config),
        _quarantine(),
        _orphan_watch(config),
        _deployment(config.deployment(ref.deployment)),
    )


def rights(queue: Queue, config: Config) -> tuple[ActTerms, ...]:
    """Returns every action of the catalogue, refused or not."""
    deployment, flavour = config.deployment(queue.ref.deployment), queue.flavour
    refused = operator(flavour).refusals(flavour)
    # In the order in which the engine asks.
    common = _no_change(deployment) or flavour.read_only
    return tuple(
        ActTerms(
            entry.label,
            effect(act, of_rows=flavour.library is Library.TABLE),
            common or refused.get(act, ""),
            _who(entry),
            entry.tone,
        )
        for act, entry in ENTRIES.items()
        if not entry.is_for_execution
    )


def scanners_of(flavour: Flavour) -> tuple[Scanner, ...]:
    """Returns the scanners that check a queue of this library."""
    if flavour.library is Library.TABLE:
        return Scanner.AUTO_RETRY, Scanner.STARTUP_SWEEP
    return tuple(one for one in Scanner if one is not Scanner.STARTUP_SWEEP)


def _summary(found: Resolved, scanners: Iterable[Scanner]) -> tuple[str, str]:
    acting = [f"The {scanner.value}" for scanner in scanners if found.policy.may_act(scanner)]
    if not acting:
        return "No scanner acts here automatically.", "They only report what they find."
    said = " and ".join([*acting[:1], *(one[0].lower() + one[1:] for one in acting[1:])])
    return f"{said} act{'s' * (len(acting) == 1)} here automatically.", ("The others only report what they find.")


def _stalled(ref: QueueRef, config: Config, inbox: Inbox | None) -> Term:
    value = config.thresholds_of(ref.deployment, ref.base).stalled_interval
    origin = _origin(ref, config, "stalled_interval")
    tally = inbox.tally(ref) if inbox else None
    counted = tally.watchdog.interval if tally else 0
    note = "How often the workers run the stalled check, according to the configuration."
    if counted > value:
        note += f" A longer interval was seen in Redis, so Unstall uses {duration(counted)}."
    return Term("Stalled interval", duration(value), origin, note, origin != BY_DEFAULT)


def _signs(table: Table) -> tuple[Term, ...]:
    """Returns the settings by which a row shows whether a worker processes it."""
    origin, columns = "configuration: [[tables]]", table.columns
    found: list[Term] = []
    if columns.lease_until:
        note = f"A row belongs to its worker until the time in {columns.lease_until} plus this grace period."
        found.append(Term("Lease grace period", duration(table.lease_grace), origin, note, True))
    if columns.heartbeat:
        note = f"A row belongs to its worker for this long after the time in {columns.heartbeat}."
        found.append(Term("Heartbeat timeout", duration(table.heartbeat_limit), origin, note, True))
    if table.age_limit is not None:
        note = "A row without a lease or a heartbeat is lost once it has run for longer than this."
        found.append(Term("Age limit", duration(table.age_limit), origin, note, True))
    if not found:
        note = "A row does not show whether a worker processes it: only a starting worker knows its own rows."
        found.append(Term("Liveness", "none", origin, note))
    if columns.attempts and not columns.max_attempts:
        note = "A row that was requeued this often fails instead."
        found.append(Term("Attempts", f"{table.attempts_limit:,}", origin, note, True))
    return tuple(found)


def _overdue(ref: QueueRef, config: Config) -> Term:
    value = config.thresholds_of(ref.deployment, ref.base).overdue_after
    origin = _origin(ref, config, "overdue_after")
    note = "A job that runs longer is shown as overdue. Unstall does not change it."
    return Term("Overdue after", "never" if value is None else duration(value), origin, note, origin != BY_DEFAULT)


def _quarantine() -> Term:
    value = f"orphaned {QUARANTINE_AFTER} times within {QUARANTINE_WINDOW // _HOUR} h"
    return Term(
        "Quarantine after", value, BUILT_IN, "Such a job is requeued only with force, because it may crash its workers."
    )


def _orphan_watch(config: Config) -> Term:
    is_set = config.orphans_every != Config().orphans_every
    origin = "configuration: orphans in [intervals]" if is_set else BY_DEFAULT
    note = "How often it checks every active job."
    return Term("Orphan-watch interval", f"every {duration(config.orphans_every * 1000)}", origin, note, is_set)


def _deployment(deployment: Deployment | Database) -> Term:
    name = shown(deployment.name)
    if deployment.read_only:
        note = "Nobody can change anything in it through Unstall."
        return Term("Deployment", f"{name}: read-only", "configuration: read_only of the deployment", note, True)
    if refusal := refusals.of_deployment(deployment.name, refusals.newest()):
        return Term("Deployment", f"{name}: read-only", "the rights of its Redis user", f"{shown(refusal.why)}.", True)
    return Term(
        "Deployment", f"{name}: read-write", BY_DEFAULT, "By users, the shell and tokens with the right to act."
    )


def _origin(ref: QueueRef, config: Config, name: str) -> str:
    """Returns the narrowest table of the configuration that says something else than the wider one."""
    own = config.queue_thresholds
    for key, written in (((ref.deployment, ref.base), str(ref)), (("", ref.base), ref.base)):
        if found := own.get(key):
            if getattr(found, name) != getattr(config.thresholds, name):
                return f"configuration: {name} of {shown(written)} in [[queues]]"
            break
    return BY_DEFAULT if _is_default(config, name) else f"configuration: {name} in [thresholds]"


def _is_default(config: Config, name: str) -> bool:
    return bool(getattr(config.thresholds, name) == getattr(_DEFAULTS, name))


def _no_change(deployment: Deployment | Database) -> str:
    if not deployment.read_only:
        return ""
    return f"The deployment {shown(deployment.name)} is configured to be read only."


def _who(entry: Entry) -> str:
    one, many = (_least(entry.right(many=is_many)) for is_many in (False, True))
    return one.value if one is many or entry.is_for_queue else f"{one}: one job; {many}: many"


def _least(right: Right) -> Role:
    """Returns the lowest role that has this right; those above have it too."""
    return next(role for role in Role if right in role.rights)
