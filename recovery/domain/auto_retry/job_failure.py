"""Classifies how a job failed: whether a retry can help at all.

The libraries write the message of an error into the job, and its class only into the stack of the attempt. So both are
checked; a job of which only the message was read can be taken for recoverable, never the other way round.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

from recovery.domain.auto_retry.error_signatures import safe_signature
from recovery.domain.jobs import JobRow

STALLED = "job stalled more than allowable limit"  # the libraries' own words
_UNRECOVERABLE = re.compile(r"(?:[\w$]+\.)*UnrecoverableError\b")
# `AbortError` is also what a request that timed out may throw. Then a person decides: a job that was
# cancelled must never come back by itself.
_CANCEL_CLASS = re.compile(
    r"(?:[\w$]+\.)*(?:AbortError|Cancell?ed(?:Error|Exception)?|Cancellation(?:Error|Exception))\b"
)
_CANCEL_WORDS = re.compile(
    r"(?:(?:the |this )?(?:job|task|run|workflow|execution|operation|request) )?(?:(?:was|is|has been) )?"
    r"(?:manually )?(?:cancell?ed|aborted)(?: (?:by|manually|because|on|at)\b.*|[.:,;!].*)?$",
    re.IGNORECASE,
)
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"[A-Za-z_][\w.]*(?::|$)")


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Last failure of a job. `error` is the stack of its last attempt, "" when it has none or was not read."""

    name: str = ""
    reason: str = ""
    error: str = ""
    failed_at: int | None = None
    attempts: int = 1
    attempts_limit: int = 1

    @classmethod
    def of(cls, row: JobRow, error: str = "") -> Self:
        return cls(row.name, row.reason, error, row.finished_at, row.attempts, row.attempts_limit)

    @property
    def signature(self) -> str:
        return safe_signature(self.reason)

    @property
    def is_stall(self) -> bool:
        """Returns True if the library failed the job because its workers died, not because of its own error. BullMQ ≥
        5.53 throws that as an UnrecoverableError, which it is not: nothing of the job itself has failed.
        """
        return self.reason.strip().startswith(STALLED)

    @property
    def is_cancelled(self) -> bool:
        line = self.reason.strip().partition("\n")[0]
        return any(_CANCEL_CLASS.match(said) for said in (line, _thrown(self.error))) or bool(_CANCEL_WORDS.match(line))

    @property
    def is_unrecoverable(self) -> bool:
        if self.is_stall:
            return False
        return (
            any(_UNRECOVERABLE.match(said) for said in (self.reason.strip(), _thrown(self.error))) or self.ended_early
        )

    @property
    def ended_early(self) -> bool:
        """Returns True if it failed for good although attempts were left: its code stopped further attempts, a child of
        it failed, or a person failed it.
        """
        return not self.is_stall and self.attempts < self.attempts_limit


def _thrown(stack: str) -> str:
    """Returns the line of a stack that names what was thrown: the first one, or the last one where Python wrote it.
    Exceptions that Python caught on the way stand above, and say nothing: a timeout there begins as a cancellation.
    """
    lines = stack.strip().splitlines()
    if not lines:
        return ""
    if not lines[0].startswith(_TRACEBACK):
        return lines[0]
    return next((line for line in reversed(lines) if _RAISED.match(line)), "")
