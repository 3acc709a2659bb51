"""Counts how often a job was orphaned: within 72 hours, but a job that was quarantined once stays quarantined.

It may be what crashes its workers, and time does not change that: it waits until a person releases it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from recovery.domain.stuck.context import QUARANTINE_AFTER, QUARANTINE_WINDOW


def orphaned_count(proven: Sequence[int], at: int) -> int:
    """Returns the count at that moment. `proven`: when it was proven to be orphaned, without what a release covers."""
    known = sorted(proven)
    most = max((last + 1 - bisect_left(known, one - QUARANTINE_WINDOW) for last, one in enumerate(known)), default=0)
    lately = len(known) - bisect_left(known, at - QUARANTINE_WINDOW)
    return max(lately, most) if most >= QUARANTINE_AFTER else lately
