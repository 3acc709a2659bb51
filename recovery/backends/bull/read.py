"""The reader of Bull 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.backends.base import Capabilities, Command, Replies, Wire
from recovery.backends.bull import sample, versions
from recovery.backends.shared.reader import KeyspaceReader
from recovery.domain.counts import Flavour, QueueSample
from recovery.domain.jobs import Family, State
from recovery.domain.refs import QueueRef


class BullReader(KeyspaceReader):
    layout = versions.LAYOUT

    def capabilities(self, flavour: Flavour) -> Capabilities:
        return versions.capabilities(flavour)

    def sample_plan(self, ref: QueueRef) -> tuple[Command, ...]:
        return sample.plan(ref.base)

    def sample(
        self, ref: QueueRef, flavour: Flavour, replies: Replies, now: int
    ) -> tuple[QueueSample, tuple[str, str]]:
        return sample.read(ref, flavour, replies)

    def following(self, wire: Wire, ref: QueueRef, wanted: Sequence[tuple[str, State]]) -> None:
        """Returns None: Bull's scripts do not say where a job went, and no read follows them."""

    def family(self, wire: Wire, ref: QueueRef, id: str) -> Family:
        """Returns no family: Bull's jobs have neither parents nor children."""
        return Family(None)
