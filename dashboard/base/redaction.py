"""Redacts what is shown of jobs: payloads by their shape, texts without secrets, and as they are only what is revealed.

No page shows values when it opens, whatever the role: a user with the right reveals them, and the audit records it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from recovery import config
from recovery.domain.identifiers import QueueRef
from recovery.domain.redaction import redact
from recovery.domain.redaction.payload_shape import key_shown, shape


class PayloadPart(StrEnum):
    """Part of a job that can be revealed by itself."""

    DATA = "data"
    OPTIONS = "options"
    RESULT = "result"
    PROGRESS = "progress"
    ERROR = "error"
    LOGS = "logs"
    RAW = "raw"


# Fields of a job's hash that hold words for people, and names: shown elsewhere on the page too.
_TEXTS = frozenset(("failedReason", "stacktrace", "defa"))
_NAMES = frozenset(("name", "pb", "rjk", "nrjid", "deid", "parentKey", "processedBy"))
_NUMBERS = frozenset((
    "timestamp", "processedOn", "finishedOn", "delay", "priority", "attemptsMade", "atm", "ats", "stalledCounter",
    "stc", "retriedOn",
))  # fmt: skip
_NUMBER_DIGITS = 16
# A progress of 0 to 100 is a percentage. Without what is behind three decimals it is too short to be a secret.
_PERCENTAGE = re.compile(r"(100|[0-9]{1,2})|(100\.0)0*|([0-9]{1,2}\.[0-9]{1,3})[0-9]*")
_FIELDS = {
    "data": PayloadPart.DATA,
    "opts": PayloadPart.OPTIONS,
    "returnvalue": PayloadPart.RESULT,
    "progress": PayloadPart.PROGRESS,
}


@dataclass(frozen=True, slots=True)
class PayloadRedactor:
    """Redacts every text of a job before a page or an API response shows it."""

    revealed: frozenset[PayloadPart] = frozenset()

    def text(self, given: str, part: PayloadPart = PayloadPart.ERROR) -> str:
        """Redacts an error, a log line or a summary."""
        return given if part in self.revealed else redact.text(given)

    def payload(self, queue: QueueRef | None, part: PayloadPart, given: str) -> str:
        """Redacts a field that should be JSON."""
        return given if part in self.revealed else _shape(queue, part, given)

    def field(self, queue: QueueRef, name: str, given: str) -> str:
        """Redacts a field of the job's hash, or a column of its row, by its name."""
        if PayloadPart.RAW in self.revealed:
            return given
        is_number = given.isascii() and given.isdigit() and len(given) <= _NUMBER_DIGITS
        if name in _TEXTS or name in _NAMES or (is_number and name in _NUMBERS):
            return redact.payload(given)
        table = config.current().table(queue.deployment, queue.base)
        if table and name != table.columns.data:
            return redact.text(given)
        return _shape(queue, _FIELDS.get(name, PayloadPart.DATA if table else name), given)

    def name(self, given: str, number: int) -> str:
        """Returns a field's name, hidden if it is data itself. `number` tells such names apart."""
        return given if PayloadPart.RAW in self.revealed else key_shown(given, number)


MASKED = PayloadRedactor()


def _shape(queue: QueueRef | None, part: str, given: str) -> str:
    if part == PayloadPart.PROGRESS and (found := _PERCENTAGE.fullmatch(given)):
        return found[found.lastindex or 0]
    paths = [path for shown in config.current().redaction.show for path in shown.of(queue)]
    return shape(given, part, paths)
