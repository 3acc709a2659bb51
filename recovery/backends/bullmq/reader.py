"""The reader of BullMQ 3 to 6."""

from __future__ import annotations

from recovery.backends.base import Capabilities, Command, CommandClient, Replies
from recovery.backends.bullmq import family, sample, versions
from recovery.backends.redis_common.reader import KeyspaceReader
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.domain.jobs import JobFamily
from recovery.domain.queues.types import LibraryVersion, QueueSample


class BullMQReader(KeyspaceReader):
    layout = versions.LAYOUT

    def __init__(self, *, may_have_markers: bool) -> None:
        self._may_have_markers = may_have_markers

    def capabilities(self, flavour: LibraryVersion) -> Capabilities:
        return versions.capabilities(flavour)

    def sample_plan(self, ref: QueueRef) -> tuple[Command, ...]:
        return sample.plan(ref.base, with_head=self._may_have_markers)

    def sample(
        self, ref: QueueRef, flavour: LibraryVersion, replies: Replies, now: int
    ) -> tuple[QueueSample, tuple[str, str]]:
        return sample.read(ref, flavour, replies)

    def family(self, wire: CommandClient, ref: QueueRef, id: str) -> JobFamily:
        return family.read(wire, self._scene(ref), encode_name(id))
