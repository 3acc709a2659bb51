"""The reader of Bull 3 and 4."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.backends.base import Capabilities, Command, CommandClient, Replies
from recovery.backends.bull import sample, versions
from recovery.backends.redis_common.reader import KeyspaceReader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobFamily, JobState
from recovery.domain.queues.types import LibraryVersion, QueueSample


class BullReader(KeyspaceReader):
    layout = versions.LAYOUT

    def capabilities(self, flavour: LibraryVersion) -> Capabilities:
        return versions.capabilities(flavour)

    def sample_plan(self, ref: QueueRef) -> tuple[Command, ...]:
        return sample.plan(ref.base)

    def sample(
        self, ref: QueueRef, flavour: LibraryVersion, replies: Replies, now: int
    ) -> tuple[QueueSample, tuple[str, str]]:
        return sample.read(ref, flavour, replies)

    def following(self, wire: CommandClient, ref: QueueRef, wanted: Sequence[tuple[str, JobState]]) -> None:
        """Returns None: Bull's scripts do not say where a job went, and no read follows them."""

    def family(self, wire: CommandClient, ref: QueueRef, id: str) -> JobFamily:
        """Returns no family: Bull's jobs have neither parents nor children."""
        return JobFamily(None)
