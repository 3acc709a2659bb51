"""Computes the pause before the next auto-retry and how many there are, by the name of the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from recovery.domain.identifiers import encode_name, printable
from recovery.domain.time_units import DAY, HOUR, SECOND, elapsed

ATTEMPTS = 5
FIRST = SECOND
FACTOR = 2.0
LONGEST = 6 * HOUR  # what still fails then waits for a person rather than for time
JITTER = 0.2  # of the pause: enough that jobs which failed together do not come back together
# Beyond these a number is a slip of the pen.
ATTEMPTS_LIMIT, FACTOR_LIMIT, PAUSE_LIMIT = 100, 100.0, 30 * DAY
ANY = "*"
_SCALE = 1 << 64


@dataclass(frozen=True, slots=True)
class Backoff:
    """Allows `attempts` auto-retries of one job: the first `first` ms after it failed, each later pause `factor` times
    longer.

    Jitter only ever adds to a pause, and never beyond `longest`.
    """

    attempts: int = ATTEMPTS
    first: int = FIRST
    factor: float = FACTOR
    longest: int = LONGEST
    jitter: float = JITTER

    def __post_init__(self) -> None:
        if not 0 <= self.attempts <= ATTEMPTS_LIMIT:
            raise ValueError(f"attempts are 0 to {ATTEMPTS_LIMIT}")
        if not 0 <= self.first <= self.longest <= PAUSE_LIMIT:
            raise ValueError(f"first is at most longest, and that at most {elapsed(PAUSE_LIMIT)}")
        if not 1.0 <= self.factor <= FACTOR_LIMIT:
            raise ValueError(f"the factor is 1 to {FACTOR_LIMIT:g}")
        if not 0.0 <= self.jitter <= 1.0:
            raise ValueError("the jitter is 0 to 1")

    def pause(self, made: int, key: str) -> int:
        """Returns the ms to wait before the auto-retry that follows `made` others. It is the same for a job at every
        call: a new random number at each check would let the shortest pause win.
        """
        # At the longest pause too there has to be room for the jitter, or all would come at once again.
        low = max(float(self.first), min(self._grown(made), self.longest / (1.0 + self.jitter)))
        return min(self.longest, round(low * (1.0 + self.jitter * chance(key, made))))

    @property
    def words(self) -> str:
        if not self.attempts:
            return "Never auto-retried."
        if self.attempts == 1:
            return f"1 auto-retry, {elapsed(self.first)} after the failure."
        how = "at equal intervals" if self.factor == 1.0 else f"then growing by factor {self.factor:g}"
        first, longest = elapsed(self.first), elapsed(self.longest)
        return f"{self.attempts} auto-retries, the first after {first}, {how}, at most {longest}."

    def _grown(self, made: int) -> float:
        grown = float(self.first)
        if self.factor == 1.0:
            return grown
        for _ in range(made):  # not by a power: that overflows long before anybody waits so long
            if grown >= self.longest or not grown:
                break
            grown *= self.factor
        return grown


@dataclass(frozen=True, slots=True)
class Backoffs:
    """Backoff table of a queue. A name that ends in `*` is a prefix; the longest that matches counts."""

    default: Backoff = Backoff()
    by_name: Mapping[str, Backoff] = field(default_factory=dict)

    def of(self, name: str) -> Backoff:
        return self.by_name.get(self.entry(name), self.default)

    def entry(self, name: str) -> str:
        """Returns the table's entry that counts for a job's name; `*` is the default."""
        if name in self.by_name:
            return name
        fitting = [known for known in self.by_name if known.endswith(ANY) and name.startswith(known[:-1])]
        return max(fitting, key=len, default=ANY)

    @property
    def words(self) -> tuple[str, ...]:
        named = (f"{printable(name)}: {backoff.words}" for name, backoff in sorted(self.by_name.items()))
        return *named, f"{'All others' if self.by_name else 'All'}: {self.default.words}"


def chance(key: str, number: int) -> float:
    """Returns a number from 0 up to 1, spread evenly over keys, and always the same for one key and number."""
    digest = blake2b(encode_name(key) + b"\0" + str(number).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / _SCALE
