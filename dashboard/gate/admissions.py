"""Decides who may start, from the cached gates and from the callers that this process admitted a moment ago.

Only the event loop calls it, and nothing here awaits: no other call comes between reading a gate and recording the
admission. A process that has just started settles first, because it cannot know whom its predecessor admitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dashboard.gate.responses import GateAnswer, GateReason
from dashboard.live.cached_state import CachedState
from recovery.config.gate import GateConfig, WithoutSample
from recovery.domain.gate.state_machine import CALM, Gate, GateState, GateThresholds
from recovery.domain.servers.samples import SampleOrigin

ALONE_MS = 5_000  # older cached state says nothing of other web processes: a new one settles at least this long
_POLL = 5_000  # ms, of a server that is not measured
_LOCAL = SampleOrigin.LOCAL.value  # how this machine is called where it has no name


@dataclass(frozen=True, slots=True)
class GateTarget:
    """Server named by a request, with its gate as this process knows it; None: not known."""

    server: str
    gate: Gate | None


class UnknownServer(Exception):
    """Raised for a server that has never reported."""


class Admissions:
    """Admissions of this web process. `own`: id of this machine, "" if none; `local`: its gate as measured here."""

    def __init__(
        self,
        picture: Callable[[], CachedState | None],
        local: Callable[[], Gate | None],
        own: str,
        gating: GateConfig,
        now: int,
    ) -> None:
        self._picture = picture
        self._local = local
        self._own = own or _LOCAL
        self._gating = gating
        self._started_at = now
        self._admitted: dict[str, int] = {}
        self._only = ""

    @property
    def known(self) -> frozenset[str]:
        return self._told() | self._gating.servers.keys()

    def is_alone(self, now: int) -> bool:
        """Returns True if no other web process can admit a caller now."""
        image = self._picture()
        if image is None or image.mirrors is None or image.looked_at is None:
            return False
        return image.mirrors <= 1 and 0 <= now - image.looked_at <= ALONE_MS

    def terms(self, server: str) -> GateThresholds:
        return self._gating.terms_of(server)

    def settling(self, place: GateTarget) -> int:
        """Returns how long the gate settles after an admission, in ms."""
        return self.terms(place.server).settling(_poll(place.gate))

    def place(self, wanted: str, now: int) -> GateTarget:
        """Returns the named server; "" means this machine if it reports, else the only server, else this machine.

        Raises Unknown.
        """
        if wanted and wanted not in self.known and wanted != self._own:
            raise UnknownServer
        server = wanted or self._default()
        gate = self._gates().get(server)
        if server == self._own and self._measures(gate, now):
            return GateTarget(server, self._local())
        return GateTarget(server, gate)

    def judge(self, place: GateTarget, now: int) -> GateAnswer:
        """Returns the answer from what this process knows. OPEN and PASSED hold only once `admit` was called."""
        terms = self.terms(place.server)
        gate = place.gate or Gate(place.server, GateState.UNKNOWN, now)
        gate = gate.admitting(self._admitted_at(place.server, now))
        if gate.sample is None or not gate.sample.is_fresh(now):
            return self._without(gate, terms, now)
        return GateAnswer.of(_REASONS[gate.state_at(now, terms)], gate, terms, _retry(gate, terms, now))

    def refused(self, place: GateTarget, reason: GateReason, words: str) -> GateAnswer:
        """Returns a refusal for a reason other than the state of the gate."""
        gate = place.gate or Gate(place.server, GateState.UNKNOWN, 0)
        return replace(GateAnswer.of(reason, gate, self.terms(place.server), 1), words=words)

    def admit(self, place: GateTarget, now: int) -> int | None:
        """Records an admission; returns the time of the one before, for `retract`."""
        before = self._admitted.get(place.server)
        self._admitted[place.server] = now
        return before

    def retract(self, place: GateTarget, before: int | None, instead: int | None) -> None:
        """Takes an admission back: another process was first (`instead`: when), or the state store did not answer."""
        at = before if instead is None else instead
        if at is None:
            self._admitted.pop(place.server, None)
        else:
            self._admitted[place.server] = at

    def _gates(self) -> Mapping[str, Gate]:
        image = self._picture()
        return image.gates if image else {}

    def _told(self) -> frozenset[str]:
        image = self._picture()
        return image.known if image else frozenset()

    def _default(self) -> str:
        """Returns the server for a request without a name.

        A server that was the only one stays the answer when its monitor falls silent: the CPU of another server is no
        substitute.
        """
        told, gates = self._told(), self._gates()
        if self._own in told:
            return self._own
        there = gates.keys() or told
        if len(there) == 1:
            self._only = next(iter(there))
            return self._only
        return self._only if self._only in told and not gates else self._own

    def _measures(self, gate: Gate | None, now: int) -> bool:
        """Returns True if this process replaces the monitor: none ever reported, or without_sample is `measure`."""
        if self._own not in self._told():
            return True
        is_fresh = gate is not None and gate.sample is not None and gate.sample.is_fresh(now)
        return self._gating.without_sample is WithoutSample.MEASURE and not is_fresh

    def _admitted_at(self, server: str, now: int) -> int:
        """Returns the last admission, never later than `now`: a clock set back must not keep the gate settling."""
        at = self._admitted[server] = min(now, self._admitted.get(server, self._started_at))
        return at

    def _without(self, gate: Gate, terms: GateThresholds, now: int) -> GateAnswer:
        poll = _poll(gate)
        left = (gate.admitted_at or 0) + terms.settling(poll) - now
        if self._gating.without_sample is not WithoutSample.PASS:
            return GateAnswer.of(GateReason.NO_FRESH_SAMPLE, gate, terms, _seconds(poll))
        return GateAnswer.of(GateReason.SETTLING if left > 0 else GateReason.PASSED, gate, terms, _seconds(left))


_REASONS = {
    GateState.OPEN: GateReason.OPEN,
    GateState.SETTLING: GateReason.SETTLING,
    GateState.CLOSED: GateReason.CLOSED,
    GateState.UNKNOWN: GateReason.TOO_FEW_SAMPLES,
}


def _poll(gate: Gate | None) -> int:
    return gate.sample.poll if gate and gate.sample else _POLL


def _retry(gate: Gate, terms: GateThresholds, now: int) -> int:
    """Returns the seconds after which a new request may succeed."""
    poll = _poll(gate)
    if gate.state is GateState.OPEN:
        left = (gate.admitted_at or 0) + terms.settling(poll) - now
        return _seconds(max(left, 1_000))
    return _seconds(poll * max(1, CALM - gate.lows))


def _seconds(ms: int) -> int:
    return max(1, math.ceil(ms / 1_000))
