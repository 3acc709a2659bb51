"""A moving average that rises fast and falls slowly, over elapsed time and not over the number of samples.

A server that just became busy must be seen at once; one that was quiet for a second is not yet quiet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

RISE = 5.0  # seconds after which 63 % of a rise is in the average: one poll
FALL = 45.0  # and of a fall: nine polls, so that the pause between two jobs does not look like rest


@dataclass(frozen=True, slots=True)
class Ewma:
    """Value of the average at one moment (seconds on any steady clock)."""

    value: float
    at: float

    def fed(self, sample: float, at: float, *, rise: float = RISE, fall: float = FALL) -> Ewma:
        """Returns the average after one more sample. It always lies between the old average and the sample."""
        elapsed = max(0.0, at - self.at)
        share = -math.expm1(-elapsed / (rise if sample > self.value else fall))
        # Written as a mix of both, and bounded: the float of `old + share × difference` may step outside.
        mixed = (1.0 - share) * self.value + share * sample
        low, high = sorted((self.value, sample))
        return Ewma(min(high, max(low, mixed)), max(at, self.at))


def add_sample(average: Ewma | None, sample: float, at: float) -> Ewma:
    """Returns the average after one more sample; without an average the sample is the first one."""
    return Ewma(sample, at) if average is None else average.fed(sample, at)
