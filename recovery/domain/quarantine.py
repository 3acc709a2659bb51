"""How often a job counts as orphaned: what lies within 72 hours, but one that was quarantined once stays it.

It may be what kills its workers, and time does not change that: a person forgives it, or it waits for ever.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from recovery.domain.surroundings import QUARANTINE_AFTER, QUARANTINE_WINDOW


def times(proven: Sequence[int], at: int) -> int:
    """As it counts at that moment. `proven`: when it was proven to be orphaned, without what was forgiven."""
    known = sorted(proven)
    most = max((last + 1 - bisect_left(known, one - QUARANTINE_WINDOW) for last, one in enumerate(known)), default=0)
    lately = len(known) - bisect_left(known, at - QUARANTINE_WINDOW)
    return max(lately, most) if most >= QUARANTINE_AFTER else lately
