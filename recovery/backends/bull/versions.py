"""Describes what Bull 3 and 4 keep, as far as a reader must know it."""

from __future__ import annotations

from recovery.backends.base import Capabilities
from recovery.backends.shared.layout import Layout, Place
from recovery.domain.counts import Flavour
from recovery.domain.jobs import State

METRICS = 4  # since 4.7.0

LAYOUT = Layout(
    (
        Place(State.WAITING, b"wait", is_list=True),
        Place(State.PAUSED, b"paused", is_list=True),
        Place(State.DELAYED, b"delayed"),
        Place(State.ACTIVE, b"active", is_list=True),
        Place(State.COMPLETED, b"completed", newest_first=True),
        Place(State.FAILED, b"failed", newest_first=True),
    )
)

_STATES = (State.ACTIVE, State.WAITING, State.DELAYED, State.COMPLETED, State.FAILED, State.PAUSED)


def capabilities(flavour: Flavour) -> Capabilities:
    return Capabilities(
        states=_STATES,
        schedulers=True,
        families=False,
        metrics=flavour.major is None or flavour.major >= METRICS,
        names_workers=False,
        global_concurrency=False,
        global_limit=False,
    )
