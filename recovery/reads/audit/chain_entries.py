"""Reads the audit's entries as they are stored in the database, one by one or all in their order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recovery.domain.audit.hash_chain import FIELDS, AuditChainLink
from recovery.domain.identifiers import QueueRef, unslug
from recovery.models import AuditEntry

PART = 500  # entries read at once: a body may hold as many jobs


@dataclass(frozen=True, slots=True)
class AuditChainEntry:
    """Entry of the hash chain as it is stored. Its `base` is a slug; `queue` is the decoded queue."""

    link: AuditChainLink
    hash: str
    seal: str = ""

    @property
    def number(self) -> int:
        return self.link.number

    @property
    def intent(self) -> int | None:
        return self.link.intent

    @property
    def queue(self) -> QueueRef | None:
        return queue_of(self.link.deployment, self.link.base)

    @property
    def body(self) -> dict[str, Any]:
        """Decoded body; {} if the stored text is no JSON object."""
        try:
            found = json.loads(self.link.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def entry_of_row(row: AuditEntry) -> AuditChainEntry:
    return AuditChainEntry(AuditChainLink(*(getattr(row, name) for name in FIELDS)), row.hash, row.seal)


def queue_of(deployment: str, base: str) -> QueueRef | None:
    """Decodes the queue of an entry; None for a note about no queue, or a name that `slug` cannot have written."""
    try:
        return QueueRef(deployment, unslug(base)) if base else None
    except ValueError:
        return None


def walk_entries(after: int | None = None) -> Iterator[AuditChainEntry]:
    """Yields every entry in its order, read in batches."""
    last = after
    while True:
        rows = AuditEntry.objects.order_by("number")
        part = list(rows[:PART] if last is None else rows.filter(number__gt=last)[:PART])
        if not part:
            return
        yield from map(entry_of_row, part)
        last = part[-1].number
