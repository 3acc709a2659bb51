"""Signs and reads confirmation tokens: who was shown what, and when. After a mismatch the dialog is shown again.

It holds a digest of each job as it was seen, so the post must meet the same jobs in the same state.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any

from django.core import signing

from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, ExpectedJob, JobSideEffect
from recovery.domain.identifiers import JobRef

LIFE_SECONDS = 600  # to write a reason in; after that the numbers in the dialog are outdated
_SALT = "unstall.act"
_NAME_LIMIT = 300  # characters
_DIGEST = 16  # hex digits: the token is signed, so this only has to tell two states of one job apart


class StaleConfirmation(Exception):
    """Raised for a token that is missing or invalid, belongs to another user, or is too old."""


@dataclass(frozen=True, slots=True)
class ConfirmationDigest:
    """Digests of what the dialog showed: one of the order, and one of each job by its full name."""

    order: str
    jobs: dict[str, str]
    at: int  # ms: for acts on all that match, those until then are meant

    def moved(self, now: ConfirmationDigest) -> list[str]:
        """Returns the jobs that have changed since, or that are no longer (or newly) to be changed."""
        names = {*self.jobs, *now.jobs}
        return sorted(name for name in names if self.jobs.get(name) != now.jobs.get(name))


def make_digest(
    act: Action,
    orders: Iterable[ActionCommand],
    allowed: frozenset[JobRef],
    every: str | None,
    at: int,
    *,
    others: Mapping[JobRef, Sequence[JobSideEffect]],
) -> ConfirmationDigest:
    """Makes the digests. `allowed`: the jobs it would change; for a queue itself, the job without an id.
    `every`: the list that is meant as a whole. `others`: which jobs change with each of them.
    """
    orders = tuple(orders)
    options = (
        replace(orders[0].options, message="") if orders else ActionOptions()
    )  # that is written into the form itself
    whole = [[str(order.queue), order.queue.job("") in allowed] for order in orders if not order.jobs]
    told = [act, every, _plain(options), whole]
    jobs = {
        short_job_name(job): _digest([_plain(seen), job in allowed, *sorted(map(str, others.get(job, ())))])
        for order in orders
        for seen in order.jobs
        for job in [order.queue.job(seen.id)]
    }
    return ConfirmationDigest(_digest(told), jobs, at)


def short_job_name(job: JobRef) -> str:
    """Returns a short name, however long the application's ids are: a token of many jobs has to fit into a form."""
    full = str(job)
    return full if len(full) <= _NAME_LIMIT else f"{full[:_NAME_LIMIT]}…{_digest(full)}"


def token(user: Any, what: ConfirmationDigest) -> str:
    return signing.dumps([user.pk, what.order, what.jobs, what.at], salt=_SALT, compress=True)


def read(user: Any, written: str) -> ConfirmationDigest:
    """Verifies a token and returns its digests. Raises Stale."""
    try:
        pk, order, jobs, at = signing.loads(written, salt=_SALT, max_age=LIFE_SECONDS)
    except signing.SignatureExpired:
        raise StaleConfirmation("This dialog is older than ten minutes.") from None
    except (signing.BadSignature, ValueError, TypeError):
        raise StaleConfirmation("The confirmation does not belong to this dialog.") from None
    if pk != user.pk:
        raise StaleConfirmation("This dialog was opened by another user.")
    return ConfirmationDigest(order, jobs, at)


def _plain(value: ActionOptions | ExpectedJob) -> dict[str, Any]:
    return asdict(value)


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:_DIGEST]
