"""What applies to one queue now, and where each value comes from; which acts can be done to it, and by whom."""

from __future__ import annotations

from dataclasses import dataclass

from dashboard.access import Role
from dashboard.templatetags.show import duration
from recovery.actions.catalog import ENTRIES, Entry
from recovery.backends import operator
from recovery.config import Config, Deployment
from recovery.config.values import Thresholds
from recovery.domain.inbox import Inbox
from recovery.domain.refs import QueueRef, shown
from recovery.domain.surroundings import POISON_AFTER, POISON_WINDOW
from recovery.reads.lists import Queue

BY_DEFAULT = "default"
BUILT_IN = "built in"
_HOUR = 3_600_000
_DEFAULTS = Thresholds()


@dataclass(frozen=True, slots=True)
class Term:
    """One value. `note` says what it is for; `is_set`: somebody configured it."""

    name: str
    value: str
    origin: str
    note: str = ""
    is_set: bool = False


@dataclass(frozen=True, slots=True)
class Right:
    """One act. `why` it cannot be done here; empty: it can, by `who`."""

    label: str
    effect: str
    why: str
    who: str
    tone: str


def terms(queue: Queue, config: Config, inbox: Inbox | None) -> tuple[Term, ...]:
    """`inbox`: what the orphan-watch found last, and with it the intervals that it counted with."""
    ref = queue.ref
    return (
        _stalled(ref, config, inbox),
        _overdue(ref, config),
        _poison(),
        _orphan_watch(config),
        _deployment(config.deployment(ref.deployment)),
    )


def rights(queue: Queue, config: Config) -> tuple[Right, ...]:
    """Every act of the catalogue, refused or not."""
    deployment, flavour = config.deployment(queue.ref.deployment), queue.flavour
    refused = operator(flavour).refusals(flavour)
    # In the order in which the engine asks.
    common = _no_change(deployment) or flavour.read_only
    return tuple(
        Right(entry.label, entry.effect, common or refused.get(act, ""), _who(entry), entry.tone)
        for act, entry in ENTRIES.items()
    )


def _stalled(ref: QueueRef, config: Config, inbox: Inbox | None) -> Term:
    value = config.thresholds_of(ref.deployment, ref.base).stalled_interval
    origin = _origin(ref, config, "stalled_interval")
    tally = inbox.tally(ref) if inbox else None
    counted = tally.watchdog.interval if tally else 0
    note = "How often the workers look for stalled jobs, as far as we are told."
    if counted > value:
        note += f" A longer one was seen in Redis: {duration(counted)} is what is counted with."
    return Term("Stalled interval", duration(value), origin, note, origin != BY_DEFAULT)


def _overdue(ref: QueueRef, config: Config) -> Term:
    value = config.thresholds_of(ref.deployment, ref.base).overdue_after
    origin = _origin(ref, config, "overdue_after")
    note = "A job that runs for longer is shown as overdue; nothing is done to it."
    return Term("Overdue after", "never" if value is None else duration(value), origin, note, origin != BY_DEFAULT)


def _poison() -> Term:
    value = f"orphaned {POISON_AFTER} times within {POISON_WINDOW // _HOUR} h"
    return Term("Poison", value, BUILT_IN, "Such a job is requeued only with force: it may be what kills its workers.")


def _orphan_watch(config: Config) -> Term:
    is_set = config.orphans_every != Config().orphans_every
    origin = "configuration: orphans in [intervals]" if is_set else BY_DEFAULT
    note = "It looks at every active job, gives its verdict and changes nothing."
    return Term("Orphan-watch", f"observes, every {duration(config.orphans_every * 1000)}", origin, note, is_set)


def _deployment(deployment: Deployment) -> Term:
    name = shown(deployment.name)
    if deployment.read_only:
        note = "Nothing in it is changed from here, by nobody."
        return Term("Deployment", f"{name}: read-only", "configuration: read_only of the deployment", note, True)
    return Term("Deployment", f"{name}: may be changed", BY_DEFAULT, "By people, the shell and tokens that may act.")


def _origin(ref: QueueRef, config: Config, name: str) -> str:
    """The narrowest table that says something else than the wider one."""
    own = config.queue_thresholds
    for key, written in (((ref.deployment, ref.base), str(ref)), (("", ref.base), ref.base)):
        if found := own.get(key):
            if getattr(found, name) != getattr(config.thresholds, name):
                return f"configuration: {name} of {shown(written)} in [[queues]]"
            break
    return BY_DEFAULT if _is_default(config, name) else f"configuration: {name} in [thresholds]"


def _is_default(config: Config, name: str) -> bool:
    return bool(getattr(config.thresholds, name) == getattr(_DEFAULTS, name))


def _no_change(deployment: Deployment) -> str:
    if not deployment.read_only:
        return ""
    return f"The deployment {shown(deployment.name)} is configured to be read only."


def _who(entry: Entry) -> str:
    return f"{Role.ADMIN}" if entry.needs_bulk else f"{Role.OPERATOR}: one job; {Role.ADMIN}: many"
