"""The gate of a server: may heavy work start on it now?

Folded over the samples of its CPU. What counts is the higher of now and the average. One sample above `close_at` closes
it. It opens when CALM samples in a row were below `open_at`: a dip of one does not. The two lie at least GAP apart, so
noise of that size around either of them changes nothing: below the one it never gets above the other.

After one heavy job was let in, the next is held until the CPU had the time to show the first (settling). Without a
fresh sample nothing is known. Times are ms on the clock of the folding process.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from recovery.domain.json_fields import count, text, whole, whole_or_none
from recovery.domain.servers.samples import Server

GAP = 10.0  # percentage points between the thresholds, at least: what a CPU's noise has
CALM = 3  # samples: two polls. One more than a dip; each more would keep work waiting on a server that rests
FRESH_POLLS = 3  # a sample that is older says nothing of now; one that was lost on its way is no news


class GateState(StrEnum):
    OPEN = "open"
    SETTLING = "settling"  # open, but a heavy job was let in a moment ago
    CLOSED = "closed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class GateThresholds:
    """CPU percentages at which a gate closes and opens, and the number of polls that it settles for."""

    close_at: float = 80.0
    open_at: float = 70.0
    settle: int = 2

    def threshold(self, state: GateState) -> float:
        """Returns the value that the CPU is compared with: a closed gate waits for the lower one."""
        return self.close_at if state in (GateState.OPEN, GateState.SETTLING) else self.open_at

    def settling(self, poll: int) -> int:
        """Returns the settling time in ms."""
        return self.settle * poll


@dataclass(frozen=True, slots=True)
class GateSample:
    """Values of a server's sample for its gate. `seen_at`: when it was published; `sampled_at`: by another clock."""

    sampled_at: int
    seen_at: int
    poll: int
    raw: float | None = None
    ema: float | None = None
    origin: str = ""

    @classmethod
    def of(cls, server: Server, seen_at: int) -> GateSample:
        raw, ema = finite_percent(server.cpu_raw), finite_percent(server.cpu_ema)
        return cls(server.sampled_at, seen_at, server.poll, raw, ema, server.origin.value)

    @property
    def cpu(self) -> float | None:
        return max((value for value in (self.raw, self.ema) if value is not None), default=None)

    def is_fresh(self, now: int) -> bool:
        """Returns True for a recent sample; False after a clock that stepped back, until the next sample comes."""
        return 0 <= now - self.seen_at <= FRESH_POLLS * self.poll


@dataclass(frozen=True, slots=True)
class Gate:
    """State of a gate after the samples so far. `state` is never SETTLING here: `state_at` computes that."""

    server: str
    state: GateState
    since: int
    why: str = ""
    sample: GateSample | None = None  # the newest
    lows: int = 0  # samples below `open_at` in a row, until now
    admitted_at: int | None = None  # when a heavy job was last let in, as far as it is known and matters still

    def state_at(self, now: int, terms: GateThresholds) -> GateState:
        """Returns the state now, also when no sample was folded for a while."""
        if self.sample is None or not self.sample.is_fresh(now):
            return GateState.UNKNOWN
        if self.state is GateState.OPEN and self.settles(now, terms):
            return GateState.SETTLING
        return self.state

    def settles(self, now: int, terms: GateThresholds) -> bool:
        """Returns True while the CPU cannot show the admitted job yet: polls are left, or no sample began since."""
        if self.admitted_at is None or self.sample is None:
            return False
        poll = self.sample.poll
        return now - self.admitted_at < terms.settling(poll) or self.sample.seen_at - poll < self.admitted_at

    def admitting(self, at: int | None) -> Gate:
        """Returns the gate with the newest admission that is known."""
        known = [moment for moment in (self.admitted_at, at) if moment is not None]
        return replace(self, admitted_at=max(known, default=None))

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, packed: object) -> Gate | None:
        """Parses a stored gate. Returns None for nothing, and for what another version wrote."""
        try:
            return _gate(json.loads(packed)) if isinstance(packed, bytes | str) else None
        except (ValueError, KeyError, TypeError, RecursionError):
            return None


def fold(gate: Gate | None, server: str, sample: GateSample | None, terms: GateThresholds, now: int) -> Gate:
    """Returns the gate after one poll. The same sample twice counts once."""
    gate = gate or Gate(server, GateState.UNKNOWN, now, "No sample received yet.")
    is_same = sample is not None and gate.sample is not None and sample.sampled_at == gate.sample.sampled_at
    if sample and gate.sample and is_same:
        # How long ago it was published is known to a few ms only: the earliest counts.
        sample = replace(sample, seen_at=min(sample.seen_at, gate.sample.seen_at))
    gate = replace(gate, sample=sample or gate.sample)
    if sample is None or sample.cpu is None or not sample.is_fresh(now):
        return _turned(replace(gate, lows=0), GateState.UNKNOWN, now, "No fresh sample.")
    return gate if is_same else _next(gate, sample.cpu, terms)


def resume_gate(gate: Gate | None, stored: Gate | None, sample: GateSample | None) -> Gate | None:
    """Returns the gate to go on from: the stored one, if its writer saw more of the server than this process did."""
    if stored is None or stored.sample is None or sample is None:
        return gate
    if stored.sample.sampled_at > sample.sampled_at:
        return gate  # from before the server's clock stepped back
    if gate and gate.sample and gate.sample.sampled_at >= stored.sample.sampled_at:
        return gate
    if stored.sample.sampled_at == sample.sampled_at:
        return replace(stored, sample=sample)  # its `seen_at` is by another clock
    return stored


def _next(gate: Gate, cpu: float, terms: GateThresholds) -> Gate:
    assert gate.sample is not None  # noqa: S101 -- `fold` put it there
    at = gate.sample.seen_at
    lows = gate.lows + 1 if cpu < terms.open_at else 0
    gate = replace(gate, lows=min(lows, CALM))
    if cpu > terms.close_at:
        return _turned(gate, GateState.CLOSED, at, f"The CPU is at {cpu:.0f} %, above {terms.close_at:g} %.")
    if gate.lows == CALM:
        return _turned(gate, GateState.OPEN, at, f"The CPU stays below {terms.open_at:g} %.")
    if gate.state is GateState.UNKNOWN and not lows:
        # It is unknown which of the two it was before: the careful one is used.
        return _turned(gate, GateState.CLOSED, at, f"The CPU is at {cpu:.0f} %, not below {terms.open_at:g} %.")
    return gate


def _turned(gate: Gate, state: GateState, at: int, why: str) -> Gate:
    return gate if gate.state is state else replace(gate, state=state, since=at, why=why)


def _gate(written: dict[str, Any]) -> Gate:
    return Gate(
        server=text(written["server"]),
        state=GateState(written["state"]),
        since=whole(written["since"]),
        why=text(written["why"]),
        sample=_sample(written["sample"]) if written["sample"] is not None else None,
        lows=count(written["lows"]),
        admitted_at=whole_or_none(written["admitted_at"]),
    )


def _sample(written: dict[str, Any]) -> GateSample:
    return GateSample(
        sampled_at=whole(written["sampled_at"]),
        seen_at=whole(written["seen_at"]),
        poll=count(written["poll"]),
        raw=finite_percent(written["raw"]),
        ema=finite_percent(written["ema"]),
        origin=text(written["origin"]),
    )


def finite_percent(told: Any) -> float | None:
    """Returns a percentage that can be compared, or None if not finite; raises ValueError for what is no number."""
    number = math.nan if told is None else float(told)
    return number if math.isfinite(number) else None
