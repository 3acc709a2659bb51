"""Describes what each generation of BullMQ keeps, and how it writes: the first version of each feature."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from recovery.backends.base import Capabilities
from recovery.backends.redis_common.layout import Layout, StatePlace
from recovery.domain.actions.types import Action
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary

# First version of each feature (`bull-reference`: key layout, job hash fields).
PRIORITIZED = 4
MARKER_KEY = 5  # up to 4, markers stood among the ids of `wait`
NAMED_WORKERS = (5, 3)
GLOBAL_CONCURRENCY = (5, 9)
GLOBAL_LIMIT = (5, 60)
PAUSE_IN_PLACE = 6  # from here on `paused` is not written any more

_NUMBER = re.compile(r"(\d{1,4})\.(\d{1,4})(?:\.(\d{1,4}))?")
_OLDEST = 3
_NEWEST_MINOR = 9999  # stands for "the newest of its major"

# Every place any generation has, in the order of a job's life. A reader asks for all of them: an upgrade leaves
# jobs behind where the newer version does not look, and those are the ones a person will search for.
_PLACES = (
    StatePlace(JobState.WAITING, b"wait", is_list=True),
    StatePlace(JobState.PAUSED, b"paused", is_list=True),
    StatePlace(JobState.PRIORITIZED, b"prioritized"),
    StatePlace(JobState.DELAYED, b"delayed"),
    StatePlace(JobState.WAITING_CHILDREN, b"waiting-children"),
    StatePlace(JobState.ACTIVE, b"active", is_list=True),
    StatePlace(JobState.COMPLETED, b"completed", newest_first=True),
    StatePlace(JobState.FAILED, b"failed", newest_first=True),
)
LAYOUT = Layout(_PLACES, has_markers=True, has_families=True, repeat_has_zone=True)


def number(flavour: LibraryVersion) -> tuple[int, int] | None:
    """Returns (major, minor) as far as they are known. The workers' major wins over what a producer wrote."""
    exact = _exact(flavour)
    return exact[:2] if exact else None


def _exact(flavour: LibraryVersion) -> tuple[int, int, int] | None:
    found = _NUMBER.match(flavour.version)
    if found is None:
        return None
    major, minor, patch = (int(part or 0) for part in found.groups())
    return (major, minor, patch) if flavour.major in (None, major) else None


@lru_cache(maxsize=256)  # as many as there are versions at work; asked for every row of the overview
def capabilities(flavour: LibraryVersion) -> Capabilities:
    return Capabilities(
        states=_states(flavour),
        schedulers=True,
        families=True,
        metrics=True,
        names_workers=_has(flavour, NAMED_WORKERS),
        global_concurrency=_has(flavour, GLOBAL_CONCURRENCY),
        global_limit=_has(flavour, GLOBAL_LIMIT),
    )


def _has(flavour: LibraryVersion, since: tuple[int, int]) -> bool:
    """Returns True if the feature may be there: a reader shows it, and without a minor version the major decides."""
    exact = number(flavour)
    return exact >= since if exact else flavour.major is None or flavour.major >= since[0]


def _states(flavour: LibraryVersion) -> tuple[JobState, ...]:
    major = flavour.major
    states = [JobState.ACTIVE, JobState.WAITING]
    if major is None or major >= PRIORITIZED:
        states.append(JobState.PRIORITIZED)
    states += [JobState.DELAYED, JobState.WAITING_CHILDREN, JobState.COMPLETED, JobState.FAILED]
    if major is None or major < PAUSE_IN_PLACE or flavour.mixed:
        states.append(JobState.PAUSED)
    return tuple(states)


# What a script does differently from one version to the next (`bull-reference` §2, §4, §5), each with its first one.
_FEATURES: Mapping[str, tuple[int, ...]] = {
    "has_prioritized": (4,),  # a sorted set of its own; before, prioritized jobs stood in `wait`
    "drops_dependencies": (4,),  # a child that fails with removeDependencyOnFailure lets its parent go
    "announces_delay": (4,),  # a parent that comes back with a delay: event `delayed`, not `waiting`
    "has_marker": (5,),
    "counts_starts": (5,),  # `ats`, and attempts in `atm`
    "sets_event_limit": (5, 1, 1),  # writes the default of meta.opts.maxLenEvents when there is none
    "knows_concurrency": (5, 9),
    "deduplicates": (5, 11),
    "aligns_metrics": (5, 12, 15),  # points end with the minute of the clock
    "names_previous": (5, 44, 3),  # event `failed` says prev active
    "lists_unsuccessful": (5, 42),  # children whose failure fails their parent, in a set of their own
    "settles_parents": (5, 47, 2),  # a child that fails its parent leaves the parent's open dependencies
    "stalls_as_stc": (5, 49),
    "defers_parents": (5, 49, 2),  # a parent is failed by the worker that takes it: `defa`
    "defers_stalls": (5, 53, 2),  # a job that stalled too often is failed by the worker that takes it: `defa`
    "puts_children_back": (5, 58, 2),  # a child that is retried is one its parent waits for again
    "keeps_next": (5, 72),  # `dn:` holds the job to be made when this one is done
    "pauses_in_place": (6,),  # jobs stay in `wait`
}
_MUST_BE_KNOWN = frozenset({"defers_parents", "defers_stalls"})


@dataclass(frozen=True, slots=True)
class BullMQTraits:
    """Way in which a queue's workers write, as far as known; what is not known is taken as the lowest of them.

    Without a minor version (workers of other languages, `skipMetasUpdate`) it is the newest of its major, with two
    exceptions. The scripts raise the stall counter in the field that a job has already. And nothing is left to a
    worker by `defa`, unless every version of that major knows it: an older one would run the job once more.
    """

    number: tuple[int, int, int]
    is_exact: bool
    is_sure: bool = True  # False: not even the major is known

    @classmethod
    def of(cls, flavour: LibraryVersion) -> BullMQTraits:
        exact = None if flavour.mixed else _exact(flavour)
        major = flavour.major or (exact[0] if exact else _OLDEST)
        is_sure = flavour.major is not None or exact is not None
        return cls(exact or (major, _NEWEST_MINOR, 0), exact is not None, is_sure)

    def since(self, *number: int) -> bool:
        return self.number >= number

    def has(self, feature: str) -> bool:
        since = _FEATURES[feature]
        if feature in _MUST_BE_KNOWN and not self.is_exact:
            return self.number[0] > since[0]
        return self.number >= since

    @property
    def locks_when_taking(self) -> bool:
        """Returns True if a job is taken and locked at once. Up to 4 it is for a moment active without a lock."""
        return self.since(5)

    @property
    def stall_field(self) -> str:
        return "stc" if self.has("stalls_as_stc") else "stalledCounter"

    @property
    def attempts_field(self) -> str:
        return "atm" if self.has("counts_starts") else "attemptsMade"

    def for_script(self) -> str:
        """Returns the traits as a JSON object for the scripts."""
        return _for_script(self)


@lru_cache(maxsize=64)
def _for_script(traits: BullMQTraits) -> str:
    flags: dict[str, object] = {feature: traits.has(feature) for feature in _FEATURES}
    fields = {"stall_field": traits.stall_field, "attempts_field": traits.attempts_field, "is_exact": traits.is_exact}
    return json.dumps(flags | fields)


_TWO_AT_WORK = "Workers of two BullMQ generations are running, which pause a queue differently: jobs could be lost."
_ANY_MAJOR = (
    "The BullMQ version of this queue cannot be detected, and versions do this differently. Start a worker first."
)
_SAME_IN_ALL = frozenset({Action.REQUEUE, Action.RELEASE, Action.CANCEL})


@lru_cache(maxsize=256)
def refusals(flavour: LibraryVersion) -> Mapping[Action, str]:
    """Returns what cannot be done to a queue of this flavour, and why."""
    if flavour.read_only or flavour.library is not QueueLibrary.BULLMQ:
        reason = flavour.read_only or "This BullMQ version is not supported: nothing is changed."
        return MappingProxyType(dict.fromkeys(Action, reason))
    refused: dict[Action, str] = {}
    if not BullMQTraits.of(flavour).is_sure:
        refused = {act: _ANY_MAJOR for act in Action if act not in _SAME_IN_ALL}
    if flavour.mixed:
        refused |= dict.fromkeys((Action.PAUSE, Action.RESUME), _TWO_AT_WORK)
    return MappingProxyType(refused)
