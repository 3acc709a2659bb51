"""The right to change things: one scheduler has it at a time, for one epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

May = Callable[[], bool]


def always() -> bool:
    """For whoever was called by a person, and leads nobody."""
    return True


def nobody(_deployment: str) -> str:
    """No other console acts anywhere."""
    return ""


@dataclass(frozen=True, slots=True)
class Mandate:
    """`epoch` of `installation` fences what is done under it. `holds` is asked right before each step that changes
    something, and `rival` too: deployment → why another console acts there and we do not, "" when we do.

    It belongs to its epoch: when the same process leads again under a later one, this mandate still holds no more.
    """

    epoch: int
    holds: May
    installation: str = ""
    rival: Callable[[str], str] = nobody
