"""What each generation of BullMQ keeps, as far as a reader must know it."""

from __future__ import annotations

import re
from functools import lru_cache

from recovery.backends.base import Capabilities
from recovery.backends.shared.layout import Layout, Place
from recovery.domain.counts import Flavour
from recovery.domain.jobs import State

# First version of each feature (`bull-reference`: key layout, job hash fields).
PRIORITIZED = 4
MARKER_KEY = 5  # up to 4, markers stood among the ids of `wait`
NAMED_WORKERS = (5, 3)
GLOBAL_CONCURRENCY = (5, 9)
GLOBAL_LIMIT = (5, 60)
PAUSE_IN_PLACE = 6  # from here on `paused` is not written any more

_NUMBER = re.compile(r"(\d{1,4})\.(\d{1,4})")

# Every place any generation has, in the order of a job's life. A reader asks for all of them: an upgrade leaves
# jobs behind where the newer version does not look, and those are the ones somebody will search for.
_PLACES = (
    Place(State.WAITING, b"wait", is_list=True),
    Place(State.PAUSED, b"paused", is_list=True),
    Place(State.PRIORITIZED, b"prioritized"),
    Place(State.DELAYED, b"delayed"),
    Place(State.WAITING_CHILDREN, b"waiting-children"),
    Place(State.ACTIVE, b"active", is_list=True),
    Place(State.COMPLETED, b"completed", newest_first=True),
    Place(State.FAILED, b"failed", newest_first=True),
)
LAYOUT = Layout(_PLACES, has_markers=True, has_families=True, repeat_has_zone=True)


def number(flavour: Flavour) -> tuple[int, int] | None:
    """(major, minor) as far as they are known. The workers' major wins over what a producer wrote."""
    found = _NUMBER.match(flavour.version)
    if found is None:
        return None
    major, minor = int(found[1]), int(found[2])
    return (major, minor) if flavour.major in (None, major) else None


@lru_cache(maxsize=256)  # as many as there are versions at work; asked for every row of the overview
def capabilities(flavour: Flavour) -> Capabilities:
    return Capabilities(
        states=_states(flavour),
        schedulers=True,
        families=True,
        metrics=True,
        names_workers=_has(flavour, NAMED_WORKERS),
        global_concurrency=_has(flavour, GLOBAL_CONCURRENCY),
        global_limit=_has(flavour, GLOBAL_LIMIT),
    )


def _has(flavour: Flavour, since: tuple[int, int]) -> bool:
    """A reader shows what may be there: without a minor version the major one decides."""
    exact = number(flavour)
    return exact >= since if exact else flavour.major is None or flavour.major >= since[0]


def _states(flavour: Flavour) -> tuple[State, ...]:
    major = flavour.major
    states = [State.ACTIVE, State.WAITING]
    if major is None or major >= PRIORITIZED:
        states.append(State.PRIORITIZED)
    states += [State.DELAYED, State.WAITING_CHILDREN, State.COMPLETED, State.FAILED]
    if major is None or major < PAUSE_IN_PLACE or flavour.mixed:
        states.append(State.PAUSED)
    return tuple(states)
