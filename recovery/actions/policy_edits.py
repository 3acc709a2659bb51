"""Policies are edited here and nowhere else: who may, what it would change, and the audit's note with the edit itself.

The note and the edit are one transaction: both happen or neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import Error, IntegrityError, transaction

from recovery.actions import action_reason, precheck
from recovery.actions.audit import audit_log
from recovery.config import Config, current
from recovery.domain.actions.types import Actor
from recovery.domain.audit.hash_chain import canonical
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.policies import parser, policy_layers
from recovery.domain.policies.policy_layers import LayerValues, Path, PolicySource, PolicyValueOrigin, ResolvedPolicy
from recovery.domain.policies.types import PolicyScanner
from recovery.errors import BadOrder, Forbidden, NotRecorded, Problem
from recovery.models import PolicyLayer
from recovery.reads.policies.queries import EditedPolicy, PolicyScope, PolicySnapshot, column, load_edits

NOTE = "policy"  # the act of the audit's notes
WRITTEN_LIMIT = 64 * 1024  # characters of one edit as JSON: a longer one belongs into the file
_NAME_LIMIT = 1024  # characters of a queue's slug, as the table holds it
_BY_LIMIT = 200  # characters, of the column
_LISTED = 5  # places that are named
_SAME = "This is already the current value: nothing would change."
_MEANWHILE = "This policy was edited meanwhile. Reload it."
_NOT_WRITTEN = "The database could not store it, so nothing was changed."


@dataclass(frozen=True, slots=True)
class PolicyPreview:
    """Changes that an edit would make, one sentence each; with `problems` it cannot be made. `notes`: to know of it."""

    changes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()


def preview(actor: Actor, deployment: str, base: str, written: Mapping[str, Any]) -> PolicyPreview:
    """Previews an edit: changes nothing and needs no reason yet. `deployment` "": in any, `base` "": all queues.

    Raises Forbidden, BadOrder and Missing.
    """
    config = current()
    _permitted(actor, config, (deployment, base))
    values, problems = _read(written)
    rows = load_edits()
    before, after = _before_and_after(config, rows, (deployment, base), values)
    notes = (*_unarmed(after), *after.withheld, *_narrower(config, rows, (deployment, base), values))
    return PolicyPreview(policy_layers.changes(before.policy, after.policy), problems, notes)


def edit(
    actor: Actor,
    deployment: str,
    base: str,
    written: Mapping[str, Any],
    reason: str,
    *,
    seen: Mapping[str, Any] | None = None,
) -> int:
    """Writes a policy; returns the number of its note in the audit. An empty one is deleted. `seen`: what was written
    there when it was shown; the edit is refused when that is no longer so.

    Raises Forbidden, BadOrder (with every problem), Missing and NotRecorded, each with nothing changed.
    """
    config, place = current(), (deployment, base)
    _permitted(actor, config, place)
    reason = action_reason.require_reason(reason)
    values, problems = _read(written)
    if problems:
        raise BadOrder("\n".join(map(str, problems)))
    wanted = _Edit(actor, place, dict(written) if values else {}, values, reason)
    try:
        with transaction.atomic():
            return _make(wanted, config, seen)
    except IntegrityError as error:
        raise BadOrder(_MEANWHILE) from error
    except Error as error:
        raise NotRecorded(f"{_NOT_WRITTEN} It answered {type(error).__name__}.") from error


def clear(actor: Actor, deployment: str, base: str, reason: str, *, seen: Mapping[str, Any] | None = None) -> int:
    """Deletes what was edited there; the file and the wider places count again. Raises as `edit` does."""
    return edit(actor, deployment, base, {}, reason, seen=seen)


@dataclass(frozen=True, slots=True)
class _Edit:
    """An edit that was checked and may be made."""

    actor: Actor
    place: PolicyScope
    written: dict[str, Any]
    values: Mapping[Path, Any]
    reason: str


def _make(wanted: _Edit, config: Config, seen: Mapping[str, Any] | None) -> int:
    """Makes the edit: 1. lock the row, so that two cannot edit it at once; 2. read all of them; 3. write; 4. note."""
    deployment, base = wanted.place
    row = PolicyLayer.objects.select_for_update().filter(deployment=deployment, base=column(base)).first()
    rows = load_edits()
    was = next(
        (one for one in rows if one.place == wanted.place),
        EditedPolicy(PolicyValueOrigin(PolicySource.PAGE, deployment, base)),
    )
    if seen is not None and dict(seen) != dict(was.written):
        raise BadOrder(_MEANWHILE)
    if not was.problems and canonical(dict(was.written)) == canonical(wanted.written):
        raise BadOrder(_SAME)
    before, after = _before_and_after(config, rows, wanted.place, wanted.values)
    _write(wanted, row)
    body = {
        "place": describe_place(wanted.place),
        "changes": list(policy_layers.changes(before.policy, after.policy)),
        "before": dict(was.written),
        "after": wanted.written,
    }
    queue = QueueRef(deployment, base) if deployment and base else None
    return audit_log.note(wanted.actor, NOTE, wanted.reason, body, queue)


def _write(wanted: _Edit, row: PolicyLayer | None) -> None:
    if not wanted.written:
        if row:
            row.delete()
        return
    row = row or PolicyLayer(deployment=wanted.place[0], base=column(wanted.place[1]))
    row.written, row.by, row.at = canonical(wanted.written), printable(wanted.actor.name)[:_BY_LIMIT], precheck.now()
    row.save()


def describe_place(place: PolicyScope) -> str:
    """Returns in words where a policy counts."""
    deployment, base = place
    if base:
        return f"{printable(base)} in {deployment}" if deployment else f"{printable(base)} in any deployment"
    return f"all queues of {deployment}" if deployment else "all queues"


def _permitted(actor: Actor, config: Config, place: PolicyScope) -> None:
    if not actor.may_bulk:
        raise Forbidden("Editing a policy needs the permission to act in bulk: scanners apply it to many jobs.")
    if place[0]:
        config.deployment(place[0])
    if len(column(place[1])) > _NAME_LIMIT:
        raise BadOrder("The name of the queue is too long.")


def _read(written: Mapping[str, Any]) -> tuple[Mapping[Path, Any], tuple[Problem, ...]]:
    values, problems = parser.read_policy(written)
    if not problems and len(canonical(dict(written))) > WRITTEN_LIMIT:
        limit = f"Write at most {WRITTEN_LIMIT:,} characters; put a longer one in the file."
        problems = (Problem("policy", "is too long.", limit),)
    return values, problems


def _before_and_after(
    config: Config, rows: tuple[EditedPolicy, ...], place: PolicyScope, values: Mapping[Path, Any]
) -> tuple[ResolvedPolicy, ResolvedPolicy]:
    """Returns both policies for the queue of this place; for a wider place, of a queue that has no narrower policy."""
    others = tuple(row for row in rows if row.place != place)
    own = (LayerValues(PolicyValueOrigin(PolicySource.PAGE, *place), values),) if values else ()
    queue = QueueRef(*place)
    return PolicySnapshot.of_rows(config, rows).of(queue), PolicySnapshot.of_rows(config, others, own).of(queue)


def _unarmed(after: ResolvedPolicy) -> tuple[str, ...]:
    return tuple(
        f"{scanner.value}: {words}"
        for scanner in PolicyScanner
        if after.policy.lacks_note(scanner)
        for words in after.policy.words(scanner)[:1]
    )


def _narrower(
    config: Config, rows: tuple[EditedPolicy, ...], place: PolicyScope, values: Mapping[Path, Any]
) -> tuple[str, ...]:
    """Returns a note where narrower policies set the same values: there they stay in effect."""
    here = PolicyValueOrigin(PolicySource.PAGE, *place)
    found = dict.fromkeys(
        describe_place((layer.origin.deployment, layer.origin.base))
        for layer in PolicySnapshot.of_rows(config, rows).layers
        if layer.origin.rank > here.rank and _overlap(layer.origin, here)
        if any(layer.values.get(path, value) != value for path, value in values.items())
    )
    if not found:
        return ()
    more = f" and {len(found) - _LISTED:,} more" if len(found) > _LISTED else ""
    return (f"Other policies stay in effect for {', '.join(list(found)[:_LISTED])}{more}.",)


def _overlap(one: PolicyValueOrigin, other: PolicyValueOrigin) -> bool:
    pairs = ((one.deployment, other.deployment), (one.base, other.base))
    return all("" in pair or pair[0] == pair[1] for pair in pairs)
