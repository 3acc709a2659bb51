"""Presents the settings of one queue and where each comes from; which actions it allows, and to which role."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dashboard.accounts.roles import UserRole
from dashboard.templatetags.show import duration
from recovery.actions.catalog import ENTRIES, ActionSpec, effect
from recovery.backends.registry import operator
from recovery.config import Config, Database, Deployment, JobTable
from recovery.config.types import Thresholds
from recovery.domain.actions.types import Right
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.policies import describe
from recovery.domain.policies.policy_layers import ResolvedPolicy
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.context import QUARANTINE_AFTER, QUARANTINE_WINDOW
from recovery.domain.stuck.inbox import StuckInbox
from recovery.reads.policies.queries import PolicySnapshot
from recovery.reads.queues.job_lists import Queue
from recovery.reads.scanners import rights_refusals

BY_DEFAULT = "default"
BUILT_IN = "built-in default"
_HOUR = 3_600_000
_DEFAULTS = Thresholds()


@dataclass(frozen=True, slots=True)
class QueueSetting:
    """A setting. `note` says what it is for; `is_set`: it is configured."""

    name: str
    value: str
    origin: str
    note: str = ""
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class QueueActionRule:
    """An action. `why`: the reason it is not possible here; empty: it is, for `who`."""

    label: str
    effect: str
    why: str
    who: str
    tone: str


@dataclass(frozen=True, slots=True)
class QueueScannerSummary:
    """Policy of the scanners for a queue. `summary`: a sentence or two; `trouble`: why none acts that should."""

    summary: str
    rest: str
    terms: tuple[describe.PolicyTerm, ...]
    trouble: tuple[str, ...]


def scanner_summary(queue: Queue, config: Config, now: int) -> QueueScannerSummary:
    found = PolicySnapshot.open(config).of(queue.ref)
    mine = scanners_of(queue.flavour)
    others = {scanner.value for scanner in PolicyScanner} - {scanner.value for scanner in mine}
    terms = tuple(term for term in describe.policy_terms(found, now) if term.name not in others)
    closed = _no_change(config.deployment(queue.ref.deployment)) or queue.flavour.read_only
    if closed:
        return QueueScannerSummary("No scanner acts here.", closed, terms, found.withheld)
    return QueueScannerSummary(*_summary(found, mine), terms, found.withheld)


def queue_settings(queue: Queue, config: Config, inbox: StuckInbox | None) -> tuple[QueueSetting, ...]:
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


def rights(queue: Queue, config: Config) -> tuple[QueueActionRule, ...]:
    """Returns every action of the catalogue, refused or not."""
    deployment, flavour = config.deployment(queue.ref.deployment), queue.flavour
    refused = operator(flavour).refusals(flavour)
    # In the order in which the engine asks.
    common = _no_change(deployment) or flavour.read_only
    return tuple(
        QueueActionRule(
            entry.label,
            effect(act, of_rows=flavour.library is QueueLibrary.TABLE),
            common or refused.get(act, ""),
            _who(entry),
            entry.tone,
        )
        for act, entry in ENTRIES.items()
        if not entry.is_for_execution
    )


def scanners_of(flavour: LibraryVersion) -> tuple[PolicyScanner, ...]:
    """Returns the scanners that check a queue of this library."""
    if flavour.library is QueueLibrary.TABLE:
        return PolicyScanner.AUTO_RETRY, PolicyScanner.STARTUP_SWEEP
    return tuple(one for one in PolicyScanner if one is not PolicyScanner.STARTUP_SWEEP)


def _summary(found: ResolvedPolicy, scanners: Iterable[PolicyScanner]) -> tuple[str, str]:
    acting = [f"The {scanner.value}" for scanner in scanners if found.policy.may_act(scanner)]
    if not acting:
        return "No scanner acts here automatically.", "They only report what they find."
    said = " and ".join([*acting[:1], *(one[0].lower() + one[1:] for one in acting[1:])])
    return f"{said} act{'s' * (len(acting) == 1)} here automatically.", ("The others only report what they find.")


def _stalled(ref: QueueRef, config: Config, inbox: StuckInbox | None) -> QueueSetting:
    value = config.thresholds_of(ref.deployment, ref.base).stalled_interval
    origin = _origin(ref, config, "stalled_interval")
    tally = inbox.tally(ref) if inbox else None
    counted = tally.watchdog.interval if tally else 0
    note = "How often the workers run the stalled check, according to the configuration."
    if counted > value:
        note += f" A longer interval was seen in Redis, so Unstall uses {duration(counted)}."
    return QueueSetting("Stalled interval", duration(value), origin, note, origin != BY_DEFAULT)


def _signs(table: JobTable) -> tuple[QueueSetting, ...]:
    """Returns the settings by which a row shows whether a worker processes it."""
    origin, columns = "configuration: [[tables]]", table.columns
    found: list[QueueSetting] = []
    if columns.lease_until:
        note = f"A row belongs to its worker until the time in {columns.lease_until} plus this grace period."
        found.append(QueueSetting("Lease grace period", duration(table.lease_grace), origin, note, True))
    if columns.heartbeat:
        note = f"A row belongs to its worker for this long after the time in {columns.heartbeat}."
        found.append(QueueSetting("Heartbeat timeout", duration(table.heartbeat_limit), origin, note, True))
    if table.age_limit is not None:
        note = "A row without a lease or a heartbeat is lost once it has run for longer than this."
        found.append(QueueSetting("Age limit", duration(table.age_limit), origin, note, True))
    if not found:
        note = "A row does not show whether a worker processes it: only a starting worker knows its own rows."
        found.append(QueueSetting("Liveness", "none", origin, note))
    if columns.attempts and not columns.max_attempts:
        note = "A row that was requeued this often fails instead."
        found.append(QueueSetting("Attempts", f"{table.attempts_limit:,}", origin, note, True))
    return tuple(found)


def _overdue(ref: QueueRef, config: Config) -> QueueSetting:
    value = config.thresholds_of(ref.deployment, ref.base).overdue_after
    origin = _origin(ref, config, "overdue_after")
    note = "A job that runs longer is shown as overdue. Unstall does not change it."
    return QueueSetting(
        "Overdue after", "never" if value is None else duration(value), origin, note, origin != BY_DEFAULT
    )


def _quarantine() -> QueueSetting:
    value = f"orphaned {QUARANTINE_AFTER} times within {QUARANTINE_WINDOW // _HOUR} h"
    return QueueSetting(
        "Quarantine after", value, BUILT_IN, "Such a job is requeued only with force, because it may crash its workers."
    )


def _orphan_watch(config: Config) -> QueueSetting:
    is_set = config.orphans_every != Config().orphans_every
    origin = "configuration: orphans in [intervals]" if is_set else BY_DEFAULT
    note = "How often it checks every active job."
    return QueueSetting("Orphan-watch interval", f"every {duration(config.orphans_every * 1000)}", origin, note, is_set)


def _deployment(deployment: Deployment | Database) -> QueueSetting:
    name = printable(deployment.name)
    if deployment.read_only:
        note = "Nobody can change anything in it through Unstall."
        return QueueSetting(
            "Deployment", f"{name}: read-only", "configuration: read_only of the deployment", note, True
        )
    if refusal := rights_refusals.of_deployment(deployment.name, rights_refusals.newest()):
        return QueueSetting(
            "Deployment", f"{name}: read-only", "the rights of its Redis user", f"{printable(refusal.why)}.", True
        )
    return QueueSetting(
        "Deployment", f"{name}: read-write", BY_DEFAULT, "By users, the shell and tokens with the right to act."
    )


def _origin(ref: QueueRef, config: Config, name: str) -> str:
    """Returns the narrowest table of the configuration that says something else than the wider one."""
    own = config.queue_thresholds
    for key, written in (((ref.deployment, ref.base), str(ref)), (("", ref.base), ref.base)):
        if found := own.get(key):
            if getattr(found, name) != getattr(config.thresholds, name):
                return f"configuration: {name} of {printable(written)} in [[queues]]"
            break
    return BY_DEFAULT if _is_default(config, name) else f"configuration: {name} in [thresholds]"


def _is_default(config: Config, name: str) -> bool:
    return bool(getattr(config.thresholds, name) == getattr(_DEFAULTS, name))


def _no_change(deployment: Deployment | Database) -> str:
    if not deployment.read_only:
        return ""
    return f"The deployment {printable(deployment.name)} is configured to be read only."


def _who(entry: ActionSpec) -> str:
    one, many = (_least(entry.right(many=is_many)) for is_many in (False, True))
    return one.value if one is many or entry.is_for_queue else f"{one}: one job; {many}: many"


def _least(right: Right) -> UserRole:
    """Returns the lowest role that has this right; those above have it too."""
    return next(role for role in UserRole if right in role.rights)
