"""Decides whether a failed job may be auto-retried, when, and why not.

Auto-retries are counted here and not in the job: a retry may reset the job's own counters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from recovery.domain import json_fields
from recovery.domain.auto_retry.backoff import Backoff, Backoffs
from recovery.domain.auto_retry.error_signatures import signature
from recovery.domain.auto_retry.job_failure import JobFailure
from recovery.domain.identifiers import JobRef, printable
from recovery.domain.time_units import HOUR, age

RETRY_CAP = 3  # auto-retries of one job within CAP_WINDOW, whatever its policy says
CAP_WINDOW = 72 * HOUR
_KEPT = 10  # times of auto-retries that are kept; the cap needs the last three


class RetryRule(StrEnum):
    """Rule that decided."""

    DUE = "due"
    WAITS = "waits"  # its pause is not over
    CAPPED = "capped"  # auto-retried too often lately
    EXHAUSTED = "exhausted"  # as often as its policy allows
    QUARANTINE = "quarantine"
    MALFORMED = "malformed"
    UNRECOVERABLE = "unrecoverable"
    CANCELLED = "cancelled"
    NAME = "name"  # the policy never auto-retries jobs of this name
    SIGNATURE = "signature"  # nor after this error
    UNKNOWN = "unknown"  # a required value is not known

    @property
    def is_final(self) -> bool:
        """Returns True if time does not change the decision: a person has to decide."""
        return self not in (RetryRule.DUE, RetryRule.WAITS, RetryRule.CAPPED)


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """Decision about an auto-retry. `at`: when it is possible at the earliest, None: never."""

    rule: RetryRule
    why: str
    at: int | None = None

    @property
    def is_due(self) -> bool:
        return self.rule is RetryRule.DUE


@dataclass(frozen=True, slots=True)
class NeverRetry:
    """Never-list of a policy. A signature matches anywhere in that of an error, in any case."""

    names: frozenset[str] = frozenset()
    signatures: frozenset[str] = frozenset()

    def name(self, name: str) -> str | None:
        """Returns the entry that forbids the name, or None; a `*` at an entry's end matches any end."""
        fits = (entry for entry in sorted(self.names) if _fits(entry, name))
        return next(fits, None)

    def signature(self, reason: str) -> str | None:
        if not self.signatures:
            return None
        said = signature(reason).casefold()
        return next((entry for entry in sorted(self.signatures) if _found(entry, said)), None)

    @property
    def words(self) -> tuple[str, ...]:
        return (
            "Never: unrecoverable errors and cancelled jobs.",
            *(f"Never jobs named {printable(name)}." for name in sorted(self.names)),
            *(f"Never after “{printable(entry)}”." for entry in sorted(self.signatures)),
        )


@dataclass(frozen=True, slots=True)
class RetryHistory:
    """Auto-retries of one job: `made` in all, `at` the last of them, oldest first."""

    made: int = 0
    at: tuple[int, ...] = ()

    def retried(self, now: int) -> RetryHistory:
        """Records an auto-retry; to be stored before it is tried, as what may have happened counts."""
        return RetryHistory(self.made + 1, (*self.at, now)[-_KEPT:])

    @classmethod
    def used_up(cls, at: int) -> Self:
        """Returns a history at its cap, for one that was stored then and cannot be read: so much may have happened."""
        return cls(RETRY_CAP, (at,) * RETRY_CAP)

    def of_life(self, born: int) -> RetryHistory:
        """Returns the history that counts for a job that was added then: an id may be used again, and only the cap
        counts retries of the earlier job. 0: when it was added is not known.
        """
        return RetryHistory(0, self.at) if born and self.at and self.at[-1] < born else self

    def withdrawn(self) -> RetryHistory:
        """Returns the history without the last auto-retry, which surely did not happen."""
        return RetryHistory(max(0, self.made - 1), self.at[:-1])

    def is_capped(self, now: int) -> bool:
        return len(self.lately(now)) >= RETRY_CAP

    def free_at(self) -> int:
        """Returns when the job is below its cap again."""
        return self.at[-RETRY_CAP] + CAP_WINDOW if len(self.at) >= RETRY_CAP else 0

    def lately(self, now: int) -> tuple[int, ...]:
        return tuple(at for at in self.at if at > now - CAP_WINDOW)

    def as_json(self) -> dict[str, Any]:
        return {"made": self.made, "at": list(self.at)}

    @classmethod
    def from_json(cls, written: Any) -> Self:
        """Parses the output of `as_json`. Raises ValueError on anything else."""
        made, at = json_fields.fields(written, "made", "at")
        if not isinstance(at, list):
            raise ValueError("not a list of times")  # noqa: TRY004 - as in stored
        return cls(json_fields.count(made), tuple(json_fields.whole(one) for one in at))


@dataclass(frozen=True, slots=True)
class RetryCase:
    """A failed job, and what else is known of it."""

    ref: JobRef
    failure: JobFailure
    past: RetryHistory = RetryHistory()
    is_quarantined: bool = False
    is_malformed: bool = False
    was_cancelled: bool = False  # its cancellation is in the audit


def decide_retry(case: RetryCase, backoffs: Backoffs, never: NeverRetry, now: int) -> RetryDecision:
    """Decides: first by what no time can change, then by the number of auto-retries, then by the pause."""
    refused = next(_refusals(case, never), None)
    return refused or _timed(case, backoffs.of(case.failure.name), now)


def _refusals(case: RetryCase, never: NeverRetry) -> Iterator[RetryDecision]:
    failure = case.failure
    if case.is_quarantined:
        yield RetryDecision(
            RetryRule.QUARANTINE,
            "It was orphaned repeatedly and may crash its workers. It is quarantined: only a person can retry it.",
        )
    if case.is_malformed:
        yield RetryDecision(RetryRule.MALFORMED, "Its data violates the schema of its queue: it would fail again.")
    if case.was_cancelled or failure.is_cancelled:
        yield RetryDecision(RetryRule.CANCELLED, "It was cancelled.")
    if failure.is_unrecoverable:
        yield RetryDecision(RetryRule.UNRECOVERABLE, _unrecoverable_words(failure))
    if (name := never.name(failure.name)) is not None:
        yield RetryDecision(RetryRule.NAME, f"The policy never auto-retries jobs named {printable(name)}.")
    if (entry := never.signature(failure.reason)) is not None:
        yield RetryDecision(RetryRule.SIGNATURE, f"The policy never auto-retries after “{printable(entry)}”.")
    if failure.failed_at is None:
        yield RetryDecision(RetryRule.UNKNOWN, "Its failure time is unknown, so no backoff can be calculated.")


def _unrecoverable_words(failure: JobFailure) -> str:
    if not failure.ended_early:
        return "Its error is marked unrecoverable."
    return (
        f"It failed for good after {failure.attempts:,} of {failure.attempts_limit:,} attempts: its job stopped "
        "further attempts."
    )


def _timed(case: RetryCase, backoff: Backoff, now: int) -> RetryDecision:
    past, failed_at = case.past, case.failure.failed_at or 0
    if past.made >= backoff.attempts:
        return RetryDecision(RetryRule.EXHAUSTED, _exhausted_words(past.made))
    due = failed_at + backoff.pause(past.made, str(case.ref))
    if past.is_capped(now):
        free = max(due, past.free_at())
        said = f"It was auto-retried {len(past.lately(now))} times within {age(CAP_WINDOW)}"
        return RetryDecision(RetryRule.CAPPED, f"{said}: the next one is possible in {age(free - now)}.", free)
    number = f"uto-retry {past.made + 1} of {backoff.attempts}"
    if due > now:
        return RetryDecision(RetryRule.WAITS, f"A{number} is due in {age(due - now)}.", due)
    return RetryDecision(RetryRule.DUE, f"It is due now: a{number}.", due)


def _exhausted_words(made: int) -> str:
    if not made:
        return "Its policy allows no auto-retry."
    return f"It was auto-retried {'once' if made == 1 else f'{made:,} times'}, as often as its policy allows."


def _fits(entry: str, name: str) -> bool:
    return name.startswith(entry[:-1]) if entry.endswith("*") else name == entry


def _found(entry: str, said: str) -> bool:
    """Returns True if the entry occurs in the signature. Numbers and ids in an entry match any, as in a signature."""
    wanted = signature(entry).casefold()
    return bool(wanted) and wanted in said
