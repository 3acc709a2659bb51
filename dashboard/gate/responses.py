"""Defines the answer of /cpu-gate, as a value and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from recovery.domain.gate.state_machine import Gate, GateSample, GateState, GateThresholds
from recovery.domain.servers.samples import SampleOrigin

DIGITS = 1  # of a percentage
SOURCE = SampleOrigin.MONITOR.value  # where no sample is
MEASURED = "no monitor reports on this server, so the web process measured it"


class GateReason(StrEnum):
    """First word of the field `reason`; programs decide by it."""

    OPEN = "open"
    CLOSED = "closed"
    SETTLING = "settling"
    NO_FRESH_SAMPLE = "no_fresh_sample"
    TOO_FEW_SAMPLES = "too_few_samples"  # its samples have only just begun
    PASSED = "passed_without_sample"  # the configuration says so
    NOT_CONFIRMED = "not_confirmed"  # other web processes may admit a caller too, and the state store cannot arbitrate


@dataclass(frozen=True, slots=True)
class GateAnswer:
    """Answer to one request; `retry` is Retry-After in seconds if the work may not start."""

    ready: bool
    reason: GateReason
    server: str
    threshold: float
    sample: GateSample | None = None
    retry: int = 0
    words: str = ""  # what else is to be said, for people

    @classmethod
    def of(cls, reason: GateReason, gate: Gate, terms: GateThresholds, retry: int = 0) -> GateAnswer:
        state = GateState.OPEN if reason in _OPEN else gate.state
        is_local = gate.sample is not None and gate.sample.origin == SampleOrigin.LOCAL
        words = MEASURED if is_local else ""
        return cls(
            reason in _READY, reason, gate.server, terms.threshold(state), gate.sample, max(1, retry), words=words
        )

    @property
    def cpu(self) -> float | None:
        return self.sample.cpu if self.sample else None

    @property
    def status(self) -> int:
        return 200 if self.ready else 503

    def encode(self) -> bytes:
        sample = self.sample
        told: dict[str, Any] = {
            "ready": self.ready,
            "cpu_effective": _rounded(self.cpu),
            "cpu_raw": _rounded(sample.raw if sample else None),
            "cpu_ema": _rounded(sample.ema if sample else None),
            "threshold": self.threshold,
            "source": (sample.origin if sample else "") or SOURCE,
            "server": self.server,
            "sampled_at": sample.sampled_at if sample else None,
            "reason": f"{self.reason}: {self.words}" if self.words else self.reason,
        }
        return json.dumps(told, separators=(",", ":")).encode("ascii")


_READY = frozenset({GateReason.OPEN, GateReason.PASSED})
_OPEN = _READY | {GateReason.SETTLING, GateReason.NOT_CONFIRMED}


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, DIGITS)
