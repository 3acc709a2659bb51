"""The audit is written here and nowhere else: an intent before anything is done, its outcome after, and notes.

Each entry carries the hash of the one before it, and a seal: its own hash signed with our key. Whoever appends holds
the one row of AuditHead until the commit, so numbers have no gaps and no two entries follow the same one, in however
many processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass
from typing import Any

from django.db import Error, transaction

from recovery import shared_clock
from recovery.domain.actions.types import ActionCommand, Actor, Outcome
from recovery.domain.audit.hash_chain import FIELDS, AuditChainLink, canonical, job_key
from recovery.domain.identifiers import QueueRef, printable
from recovery.errors import NotRecorded
from recovery.models import AuditEntry, AuditHead, AuditJob
from recovery.reads.audit import seals
from recovery.stores.sql.bulk_insert import insert_rows

INTENT, OUTCOME, NOTE = "intent", "outcome", "note"
REASON_LIMIT = 500  # characters: a sentence and a ticket's number
_HEAD = 1  # primary key of the one row
_WIDTHS = {"actor_kind": 16, "actor": 200, "role": 16, "address": 64, "act": 32}  # of the columns
NOTHING_DONE = "The audit cannot be written, so nothing was changed."


@dataclass(frozen=True, slots=True)
class _Draft:
    """An entry that has no place in the chain yet."""

    phase: str
    actor: Actor
    act: str
    queue: QueueRef | None
    reason: str
    body: Mapping[str, Any]
    intent: int | None = None
    jobs: tuple[str, ...] = ()


Also = Callable[[int], None]  # writes in the transaction of an entry, given its number


def write_intent(
    order: ActionCommand, body: Mapping[str, Any], jobs: Iterable[str] = (), also: Also | None = None
) -> int:
    """Writes and commits the intent of an action; returns its number. Raises NotRecorded: then nothing may be done.

    An act on the queue itself has one job in the index whose id is "", so that its outcome can be looked for too.
    What `also` raises takes the entry back.
    """
    ids = tuple(jobs) or ("",)
    draft = _Draft(INTENT, order.actor, order.act, order.queue, order.reason, body, jobs=ids)
    return _write(draft, durable=True, also=also)


def write_outcome(
    intent: int,
    order: ActionCommand,
    body: Mapping[str, Any],
    outcomes: Mapping[str, Outcome],
    also: Also | None = None,
) -> int:
    """Writes an intent's outcome; returns its number. Raises NotRecorded; the intent's outcome then stays unknown.

    The jobs that a clean or a drain found are known only now, so they are listed now.
    """
    draft = _Draft(OUTCOME, order.actor, order.act, order.queue, order.reason, body, intent)
    try:
        with transaction.atomic(durable=True):
            number = _append(draft)
            _settle(intent, outcomes)
            if not order.jobs:
                _list(intent, order.queue, [id for id in outcomes if id], Outcome.DONE)
            if also:
                also(number)
            return number
    except Error as error:
        raise NotRecorded(f"The result could not be recorded in the audit: {_plain(error)}") from error


def note(  # noqa: PLR0917 -- the columns of an entry
    actor: Actor,
    act: str,
    reason: str = "",
    body: Mapping[str, Any] | None = None,
    queue: QueueRef | None = None,
    jobs: Iterable[str] = (),
) -> int:
    """Records something that changes no job: a sign-in, a role changed, a payload revealed. Returns its number.

    Part of the caller's transaction, if there is one: then both happen or neither. Raises NotRecorded.
    """
    return _write(_Draft(NOTE, actor, act, queue, reason, body or {}, jobs=tuple(jobs)), durable=False)


def reseal(actor: Actor, number: int, hash: str, reason: str, body: Mapping[str, Any]) -> int:
    """Moves the mark to this entry, which has been verified: it and those before it no longer need a former key.

    Raises NotRecorded.
    """
    try:
        with transaction.atomic(durable=True):
            mark = seals.AuditMark.of(number, hash)
            AuditHead.objects.select_for_update().filter(pk=_HEAD).update(marked=mark.number, mark=mark.seal)
            return note(actor, "reseal audit", reason, {**body, "up to": number})
    except Error as error:
        raise NotRecorded(f"{NOTHING_DONE} {_plain(error)}") from error


def _write(draft: _Draft, *, durable: bool, also: Also | None = None) -> int:
    try:
        with transaction.atomic(durable=durable):
            number = _append(draft)
            if draft.queue is not None:
                _list(number, draft.queue, draft.jobs)
            if also:
                also(number)
            return number
    except Error as error:
        raise NotRecorded(f"{NOTHING_DONE} {_plain(error)}") from error


def _append(draft: _Draft) -> int:
    """Appends the entry inside a transaction: 1. take the head, 2. link behind it, 3. move it on."""
    head = _head()
    link = _link(draft, head)
    written = dict(zip(FIELDS, astuple(link), strict=True)) | {"hash": link.hash}
    AuditEntry(**written, seal=seals.seal_of(link.number, written["hash"])).save(force_insert=True)
    moved = AuditHead.objects.filter(pk=_HEAD, number=head.number).update(number=link.number, hash=written["hash"])
    if not moved:
        raise NotRecorded("Another process appended to the audit at the same moment. Nothing was changed; try again.")
    return link.number


def _head() -> AuditHead:
    head = AuditHead.objects.select_for_update().filter(pk=_HEAD).first()
    if head is None:
        mark = seals.AuditMark.of(seals.START, "")
        AuditHead.objects.get_or_create(pk=_HEAD, defaults={"marked": mark.number, "mark": mark.seal})
        head = AuditHead.objects.select_for_update().get(pk=_HEAD)
    return head


def _link(draft: _Draft, head: AuditHead) -> AuditChainLink:
    actor = draft.actor
    texts = {"actor_kind": actor.kind, "actor": actor.name, "role": actor.role, "address": actor.address}
    texts["act"] = draft.act
    return AuditChainLink(
        number=head.number + 1,
        at=shared_clock.now(),
        phase=draft.phase,
        intent=draft.intent,
        deployment=draft.queue.deployment if draft.queue else "",
        base=draft.queue.slug if draft.queue else "",
        reason=_text(draft.reason)[:REASON_LIMIT],
        body=canonical(draft.body),
        previous=head.hash,
        **{name: _text(text)[: _WIDTHS[name]] for name, text in texts.items()},
    )


def _list(number: int, queue: QueueRef, jobs: Iterable[str], outcome: str = "") -> None:
    """Adds rows to the index by job. They belong to the intent, and get the outcome later."""
    keys = dict.fromkeys(map(job_key, jobs))
    place = (queue.deployment, queue.slug)
    insert_rows(
        AuditJob, ("entry_id", "deployment", "base", "job", "outcome"), [(number, *place, key, outcome) for key in keys]
    )


def _settle(intent: int, outcomes: Mapping[str, Outcome]) -> None:
    """Writes outcomes into the index: one UPDATE for the most frequent outcome, and one for each other."""
    listed = AuditJob.objects.filter(entry_id=intent)
    ranked = [outcome for outcome, _ in Counter(outcomes.values()).most_common()]
    for place, outcome in enumerate(ranked):
        keys = [job_key(id) for id, came_to in outcomes.items() if came_to is outcome]
        (listed.filter(job__in=keys) if place else listed).update(outcome=outcome)


def _text(given: str) -> str:
    """Returns the text as a database takes it: without NUL, and without half of a surrogate pair."""
    return printable(given.encode("utf-8", "replace").decode("utf-8"))


def _plain(error: Exception) -> str:
    """Describes a database error by its class only: the driver's text may name hosts and files."""
    return f"The database answered {type(error).__name__}."
