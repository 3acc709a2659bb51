"""Reads and writes the URL that asks for an action: `/act?act=requeue&job=main/bull:mail/42&job=…`.

`queue=DEPLOYMENT/BASE` alone means the queue itself; with `all=failed` every job of one of its lists, with `all=orphan`
every active job of that verdict. `matching=stuck` means every job of the inbox that its filter (queue, cause, verdict)
holds, `matching=n8n` every execution of n8n's table that its filter (mismatch, n8n, execution) holds. Names are written
as everywhere in addresses. `in` says where the jobs were last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme, urlencode

from dashboard.actions.option_fields import FLAGS
from dashboard.base.url_identifiers import job_url_ref, queue_url_ref
from dashboard.n8n.presenters import PairFilter
from dashboard.stuck.filters import StuckFilter
from recovery.domain.actions.types import Action, ActionOptions
from recovery.domain.identifiers import JobRef, QueueRef, unslug
from recovery.domain.jobs import JobState
from recovery.domain.stuck.types import VerdictKind

JOBS_LIMIT = 100  # by name: as many as a page has rows; more than that are "all matching"
MESSAGE_LIMIT = 300  # characters of the reason that `fail` writes into a job
AnyFilter = StuckFilter | PairFilter
MATCHING = (Action.REQUEUE, Action.FAIL, Action.RELEASE, Action.REMOVE)  # what is done to stuck jobs, many at once
MATCHING_EXECUTIONS = (Action.MARK, Action.RETRY_EXECUTION)  # what is done to n8n's executions, many at once
_INBOX, _TABLE = "stuck", "n8n"
_NUMBERS = {"older_than": 365 * 86_400_000, "limit": 1_000_000}


class InvalidRequest(Exception):
    """Raised for a URL that asks for nothing that can be done; the text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """An action on named jobs, on a queue, or on everything that matches. `back`: the page that the user came from."""

    act: Action
    jobs: tuple[JobRef, ...] = ()
    queue: QueueRef | None = None
    every: JobState | VerdictKind | None = None
    place: JobState | None = None
    back: str = ""
    matching: AnyFilter | None = None  # an empty one holds everything

    @classmethod
    def of(cls, asked: QueryDict) -> ActionRequest:
        """Reads the request from a URL's query. Raises NotUnderstood."""
        jobs = tuple(dict.fromkeys(map(_job, asked.getlist("job"))))
        if len(jobs) > JOBS_LIMIT:
            raise InvalidRequest(f"The selection has more than {JOBS_LIMIT} jobs. Select all that match instead.")
        matching = _matching(asked)
        queue, every = ("", "") if matching is not None else (str(asked.get("queue", "")), str(asked.get("all", "")))
        made = cls(
            act=_one(Action, asked.get("act", ""), "Unknown action."),
            jobs=jobs,
            queue=_queue(queue) if queue else None,
            every=_every(every) if every else None,
            place=next((state for state in JobState if state.value == asked.get("in")), None),
            back=_back(asked.get("back", "")),
            matching=matching,
        )
        made._check()
        return made

    def _check(self) -> None:
        if self.matching is None and not (self.jobs or self.queue):
            raise InvalidRequest("No job is selected.")
        if self.matching is not None and self.jobs:
            raise InvalidRequest("Select some jobs or all that match, not both.")
        if isinstance(self.matching, StuckFilter) and self.act not in MATCHING:
            raise InvalidRequest("This action is not available for all matching stuck jobs.")
        if isinstance(self.matching, PairFilter) and self.act not in MATCHING_EXECUTIONS:
            raise InvalidRequest("This action is not available for all matching n8n executions.")

    @property
    def queues(self) -> dict[QueueRef, list[str]]:
        """Ids of each queue, in the order they were named."""
        found: dict[QueueRef, list[str]] = {}
        for job in self.jobs:
            found.setdefault(job.queue, []).append(job.id)
        return found

    @property
    def every_written(self) -> str | None:
        """List that "all" means, in one word; None when jobs are named."""
        if self.matching is not None:
            return f"{_list_of(self.matching)}{self.matching.address}"
        return None if self.every is None else self.every.value

    @property
    def address(self) -> str:
        return action_url(
            self.act,
            self.jobs,
            queue=self.queue,
            every=self.every,
            place=self.place,
            back=self.back,
            matching=self.matching,
        )


def action_url(
    act: Action | str,
    jobs: Iterable[JobRef] = (),
    *,
    queue: QueueRef | None = None,
    every: JobState | VerdictKind | None = None,
    place: JobState | None = None,
    back: str = "",
    matching: AnyFilter | None = None,
) -> str:
    """Returns the URL of this action's dialog."""
    parts: list[tuple[str, str]] = [("act", str(act))]
    if queue is not None:
        parts.append(("queue", queue_url_ref(queue)))
    if every is not None:
        parts.append(("all", every.value))
    if matching is not None:
        parts += [("matching", _list_of(matching)), *matching.told.items()]
    parts += [("job", job_url_ref(job)) for job in jobs]
    if place is not None:
        parts.append(("in", place.value))
    if back:
        parts.append(("back", back))
    return f"{reverse('act')}?{urlencode(parts)}"


def options(act: Action, posted: Mapping[str, str], *, shown: bool) -> ActionOptions:
    """Returns the options as posted; before the form was `shown`, the defaults."""
    if not shown:
        return ActionOptions()
    told: dict[str, Any] = {name: name in posted for name in FLAGS if f"has_{name}" in posted}
    for name, most in _NUMBERS.items():
        if name in posted:
            told[name] = _number(posted[name], most)
    if posted.get("state"):
        told["state"] = _one(JobState, posted["state"], "Unknown job list.")
    if act is Action.FAIL:
        told["message"] = posted.get("message", "").strip()[:MESSAGE_LIMIT]
    return ActionOptions(**told)


def _matching(asked: QueryDict) -> AnyFilter | None:
    if asked.get("matching") == _TABLE:
        return PairFilter.of(asked)
    return StuckFilter.of(asked) if asked.get("matching") == _INBOX else None


def _list_of(matching: AnyFilter) -> str:
    return _TABLE if isinstance(matching, PairFilter) else _INBOX


def _number(written: str, most: int) -> int:
    text = written.strip()
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 16) or int(text) > most:
        raise InvalidRequest(f"{text[:20]!r} is not a number from 0 to {most:,}.")
    return int(text)


def _queue(written: str) -> QueueRef:
    deployment, slash, base = written.partition("/")
    try:
        if slash and deployment:
            return QueueRef(deployment, unslug(base))
    except ValueError:
        pass
    raise InvalidRequest("The URL names no queue. Check that the URL is complete.")


def _job(written: str) -> JobRef:
    queue, _, id = written.rpartition("/")
    try:
        return JobRef(_queue(queue), unslug(id))
    except ValueError:
        raise InvalidRequest("The URL names no job. Check that the URL is complete.") from None


def _every(written: str) -> JobState | VerdictKind:
    lists: tuple[JobState | VerdictKind, ...] = (*JobState, *VerdictKind)
    found = next((one for one in lists if one.value == written), None)
    if found is None or found in (JobState.UNKNOWN, VerdictKind.UNKNOWN):
        raise InvalidRequest("Unknown job list.")
    return found


def _back(written: str) -> str:
    """Returns the page to go back to if it is one of ours; else an empty text."""
    local = written.startswith("/") and url_has_allowed_host_and_scheme(written, allowed_hosts=None)
    return written if local else ""


def _one(kind: Any, written: str, refusal: str) -> Any:
    found = next((one for one in kind if one.value == written), None)
    if found is None:
        raise InvalidRequest(refusal)
    return found
