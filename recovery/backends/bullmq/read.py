"""The reader of BullMQ 3 to 6."""

from __future__ import annotations

from recovery.backends.base import Capabilities, Command, Replies, Wire
from recovery.backends.bullmq import family, sample, versions
from recovery.backends.shared.reader import KeyspaceReader
from recovery.domain.counts import Flavour, QueueSample
from recovery.domain.jobs import Family
from recovery.domain.refs import QueueRef, raw


class BullMQReader(KeyspaceReader):
    layout = versions.LAYOUT

    def __init__(self, *, may_have_markers: bool) -> None:
        self._may_have_markers = may_have_markers

    def capabilities(self, flavour: Flavour) -> Capabilities:
        return versions.capabilities(flavour)

    def sample_plan(self, ref: QueueRef) -> tuple[Command, ...]:
        return sample.plan(ref.base, with_head=self._may_have_markers)

    def sample(
        self, ref: QueueRef, flavour: Flavour, replies: Replies, now: int
    ) -> tuple[QueueSample, tuple[str, str]]:
        return sample.read(ref, flavour, replies)

    def family(self, wire: Wire, ref: QueueRef, id: str) -> Family:
        return family.read(wire, self._scene(ref), raw(id))
