"""Defines the leader token: the right of one scheduler at a time, for one epoch, to change things."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

May = Callable[[], bool]


def always_leader() -> bool:
    """Always returns True: for actions that a person calls, which need no leader."""
    return True


def no_rival(_deployment: str) -> str:
    """Always returns "": no other console acts anywhere."""
    return ""


@dataclass(frozen=True, slots=True)
class LeaderToken:
    """Right to change things as the leader. `epoch` of `installation` fences what is done under it. `holds` is called
    right before each step that changes something, and so is `rival`: deployment → why another console acts there and
    this one does not, "" when this one does.

    It belongs to its epoch: when the same process leads again under a later one, this leader token still does not hold.
    """

    epoch: int
    holds: May
    installation: str = ""
    rival: Callable[[str], str] = no_rival
