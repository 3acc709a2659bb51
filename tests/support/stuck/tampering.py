"""Ways in which somebody who can write the database, and has not the secret key, changes the audit.

`main` tries all of them on the configured database, and prints those that are not found as they should be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connection, transaction

from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, Actor, ExpectedJob, Outcome
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.models import AuditEntry, AuditHead, AuditJob
from recovery.reads.audit import queries as book
from recovery.reads.audit.seals import AuditMark

MAIL = QueueRef("main", "bull:mail")
ADA = Actor("person", "ada", "admin", "10.0.0.7", may_act=True, may_bulk=True)
BEFORE = 4  # entries of a version that signed nothing
INTENT, OUTCOME, DRAIN, OPEN, LAST = 6, 7, 8, 10, 11  # entries of `chain`
D, U = Outcome.DONE, Outcome.REFUSED


def act(act: Action, outcomes: dict[str, Outcome] | None, *ids: str) -> int:
    """An intent, and its outcome unless it has none; the number of the intent."""
    order = ActionCommand(
        act, MAIL, ADA, "it hangs", tuple(ExpectedJob(id, JobState.FAILED) for id in ids), ActionOptions()
    )
    body: dict[str, Any] = {"options": {}}
    number = audit_log.write_intent(order, body | ({"jobs": [{"job": id} for id in ids]} if ids else {}), ids)
    if outcomes is not None:
        jobs = [{"job": id, "outcome": outcome} for id, outcome in outcomes.items()]
        audit_log.write_outcome(number, order, {"jobs": jobs}, outcomes)
    return number


def unsign() -> None:
    """All entries up to now are those of a version that signed nothing, and the database was migrated since."""
    head = book.head()
    mark = AuditMark.of(head.number, head.hash)
    AuditEntry.objects.update(seal="")
    AuditHead.objects.update(marked=mark.number, mark=mark.seal)


def chain() -> None:
    """Entries of an earlier version up to #4, and signed ones up to #11."""
    audit_log.note(ADA, "log in")
    act(Action.RETRY, {"old": D}, "old")
    audit_log.note(ADA, "log in", "the second")
    unsign()
    audit_log.note(ADA, "log in", "the third")
    act(Action.REMOVE, {"1": D, "2": D, "3": U}, "1", "2", "3")
    act(Action.DRAIN, {"": D, "7": D, "8": D})
    act(Action.RETRY, None, "9")
    audit_log.note(ADA, "log in", "the last")


# -- what an attacker can make


def entry(number: int) -> AuditEntry:
    return AuditEntry.objects.get(number=number)


def alter(number: int, **fields: Any) -> None:
    AuditEntry.objects.filter(number=number).update(**fields)


def relink(first: int = 1) -> None:
    """Every hash from here on made anew, and the head: what an unkeyed chain cannot show."""
    before = AuditEntry.objects.filter(number__lt=first).order_by("-number").first()
    previous = before.hash if before else ""
    for row in AuditEntry.objects.filter(number__gte=first).order_by("number"):
        alter(row.number, previous=previous)
        previous = book.load_entry(row.number).link.hash
        alter(row.number, hash=previous)
    newest = AuditEntry.objects.order_by("-number").first()
    if newest:
        AuditHead.objects.update(number=newest.number, hash=newest.hash)


def append(**fields: Any) -> None:
    row = entry(LAST)
    row.number, row.previous, row.reason = LAST + 1, row.hash, "forged"
    for name, value in fields.items():
        setattr(row, name, value)
    row.save(force_insert=True)
    alter(LAST + 1, hash=book.load_entry(LAST + 1).link.hash)
    AuditHead.objects.update(number=LAST + 1, hash=entry(LAST + 1).hash)


def renumber(moves: Sequence[tuple[int, int]]) -> None:
    AuditJob.objects.all().delete()  # they would stand in the way
    for old, new in moves:
        AuditEntry.objects.filter(number=old).update(number=new)


def rows(number: int = INTENT, job: str = "") -> Any:
    found = AuditJob.objects.filter(entry_id=number)
    return found.filter(job=job_key(job)) if job else found


def add_row(number: int, job: str, outcome: str = "done") -> None:
    with connection.constraint_checks_disabled():
        AuditJob.objects.create(
            entry_id=number, deployment=MAIL.deployment, base=MAIL.slug, job=job_key(job), outcome=outcome
        )


def alter_and_relink() -> None:
    alter(INTENT, reason="nothing happened")
    relink(INTENT)


def alter_with_hash() -> None:
    alter(INTENT, reason="nothing happened")
    alter(INTENT, hash=book.load_entry(INTENT).link.hash)


def alter_outcome() -> None:
    body = json.loads(entry(OUTCOME).body)
    body["jobs"][2]["outcome"] = "done"
    alter(OUTCOME, body=json.dumps(body))


def alter_outcome_with_index() -> None:
    alter_outcome()
    rows(job="3").update(outcome="done")
    relink(OUTCOME)


def delete_and_relink() -> None:
    AuditEntry.objects.filter(number=5).delete()
    renumber([(number, number - 1) for number in range(6, LAST + 1)])
    relink(5)


def delete_first() -> None:
    AuditEntry.objects.filter(number=1).delete()


def insert_in_front() -> None:
    row = entry(1)
    row.number = 0
    row.save(force_insert=True)


def insert_behind() -> None:
    row = entry(LAST)
    row.number, row.previous = LAST + 1, row.hash
    row.save(force_insert=True)


def insert_between() -> None:
    renumber([(number, number + 1) for number in range(LAST, 4, -1)])
    row = entry(6)
    row.number, row.reason = 5, "forged"
    row.save(force_insert=True)
    relink(5)


def swap() -> None:
    renumber([(5, 99), (LAST, 5), (99, LAST)])


def swap_and_relink() -> None:
    swap()
    relink(5)


def truncate() -> None:
    AuditEntry.objects.filter(number__gt=9).delete()


def strip_seals() -> None:
    AuditEntry.objects.update(seal="")


def strip_seals_and_mark() -> None:
    strip_seals()
    AuditHead.objects.update(marked=0, mark="")


def move_mark_to_the_end() -> None:
    alter_and_relink()
    AuditHead.objects.update(marked=LAST)


def move_mark_to_the_front() -> None:
    AuditHead.objects.update(marked=0)


def move_mark_behind_the_end() -> None:
    AuditHead.objects.update(marked=LAST + 10)


def sign_the_mark_with_an_entry_s_seal() -> None:
    AuditHead.objects.update(marked=LAST, mark=entry(LAST).seal)
    strip_seals()


def rewrite_what_was_not_signed() -> None:
    alter(2, reason="nothing happened")
    relink(1)


def rewrite_all() -> None:
    rewrite_what_was_not_signed()
    strip_seals_and_mark()


def delete_the_head() -> None:
    AuditHead.objects.all().delete()


def duplicate_row() -> None:
    add_row(INTENT, "1")


def insert_entry_and_row() -> None:
    append(phase="intent", seal=entry(LAST).seal, act="remove", deployment=MAIL.deployment, base=MAIL.slug)
    add_row(LAST + 1, "")


# What is done, and of what kind the first finding is.
WAYS: dict[str, tuple[Callable[[], Any], str]] = {
    "alter the reason": (lambda: alter(INTENT, reason="nothing happened"), "altered"),
    "alter the time": (lambda: alter(INTENT, at=1), "altered"),
    "alter who did it": (lambda: alter(INTENT, actor="eve"), "altered"),
    "alter the role": (lambda: alter(INTENT, role="viewer"), "altered"),
    "alter the address": (lambda: alter(INTENT, address="10.0.0.8"), "altered"),
    "alter the kind of actor": (lambda: alter(INTENT, actor_kind="scanner"), "altered"),
    "alter the act": (lambda: alter(INTENT, act="retry"), "altered"),
    "alter the queue": (lambda: alter(INTENT, base="bull:other"), "altered"),
    "alter the deployment": (lambda: alter(INTENT, deployment="other"), "altered"),
    "alter the phase": (lambda: alter(INTENT, phase="note"), "altered"),
    "alter whose outcome it is": (lambda: alter(OUTCOME, intent=2), "altered"),
    "alter an outcome": (alter_outcome, "altered"),
    "alter the last entry": (lambda: alter(LAST, reason="x"), "altered"),
    "alter an entry that was not signed": (lambda: alter(2, reason="x"), "altered"),
    "alter with its hash": (alter_with_hash, "forged"),
    "alter with all hashes behind it": (alter_and_relink, "forged"),
    "alter an outcome, its index and all hashes": (alter_outcome_with_index, "forged"),
    "delete one": (lambda: AuditEntry.objects.filter(number=5).delete(), "deleted"),
    "delete the first": (delete_first, "deleted"),
    "delete an outcome": (lambda: AuditEntry.objects.filter(number=OUTCOME).delete(), "deleted"),
    "delete one and close the gap": (delete_and_relink, "forged"),
    "insert in front": (insert_in_front, "inserted"),
    "insert behind": (insert_behind, "inserted"),
    "insert between, with all hashes": (insert_between, "forged"),
    "append with a head": (lambda: append(seal=""), "forged"),
    "append with a head and another's seal": (append, "forged"),
    "append with a head and a key of one's own": (lambda: append(seal=f"{'0' * 8}:{'0' * 64}"), "unknown key"),
    "append with a head and nonsense for a seal": (lambda: append(seal="x" * 80), "forged"),
    "append an act with its index": (insert_entry_and_row, "forged"),
    "swap two": (swap, "moved"),
    "swap two, with all hashes": (swap_and_relink, "forged"),
    "truncate": (truncate, "truncated"),
    "erase all entries": (lambda: AuditEntry.objects.all().delete(), "truncated"),
    "alter the head": (lambda: AuditHead.objects.update(hash="0" * 64), "altered"),
    "raise the head": (lambda: AuditHead.objects.update(number=LAST + 5), "truncated"),
    "lower the head": (lambda: AuditHead.objects.update(number=LAST - 1), "inserted"),
    "delete the head": (delete_the_head, "unsigned"),
    "strip one seal": (lambda: alter(INTENT, seal=""), "forged"),
    "swap two seals": (lambda: alter(INTENT, seal=entry(OUTCOME).seal), "forged"),
    "strip all seals": (strip_seals, "forged"),
    "strip all seals and the mark": (strip_seals_and_mark, "unsigned"),
    "move the mark to the end": (move_mark_to_the_end, "unsigned"),
    "move the mark to the front": (move_mark_to_the_front, "unsigned"),
    "move the mark behind the end": (move_mark_behind_the_end, "unsigned"),
    "sign the mark with an entry's seal": (sign_the_mark_with_an_entry_s_seal, "unsigned"),
    "rewrite what was not signed": (rewrite_what_was_not_signed, "unsigned"),
    "rewrite all": (rewrite_all, "unsigned"),
    "index: alter an outcome": (lambda: rows(job="3").update(outcome="done"), "index"),
    "index: empty an outcome": (lambda: rows(job="1").update(outcome=""), "index"),
    "index: fill in an outcome": (lambda: rows(OPEN).update(outcome="done"), "index"),
    "index: delete one": (lambda: rows(job="1").delete(), "index"),
    "index: delete all": (lambda: AuditJob.objects.all().delete(), "index"),
    "index: rename one": (lambda: rows(job="1").update(job=job_key("other")), "index"),
    "index: move one to another queue": (lambda: rows(job="1").update(base="bull:other"), "index"),
    "index: move one to another deployment": (lambda: rows(job="1").update(deployment="other"), "index"),
    "index: move one to another act": (lambda: rows(job="1").update(entry_id=OPEN), "index"),
    "index: add one": (lambda: add_row(INTENT, "planted"), "index"),
    "index: add one twice": (duplicate_row, "index"),
    "index: add one to a note": (lambda: add_row(5, "planted"), "index"),
    "index: add one to a drain": (lambda: add_row(DRAIN, "planted"), "index"),
    "index: alter what a drain took": (lambda: rows(DRAIN, "7").update(outcome="refused"), "index"),
    "index: alter one of an earlier version": (lambda: rows(2).update(outcome="refused"), "index"),
    "index: add one of no entry": (lambda: add_row(99, "planted"), "index"),
}


def first_finding(way: Callable[[], Any]) -> str:
    """The kind of what is found first after this was done; all of it is taken back. "" when nothing is found."""
    with transaction.atomic():
        way()
        report = book.verify()
        transaction.set_rollback(True)
    return report.findings[0].kind if report.findings else ""


def main() -> None:
    chain()
    assert book.verify().is_sound
    found = {name: first_finding(way) for name, (way, _) in WAYS.items()}
    sys.stdout.write(json.dumps({name: kind for name, kind in found.items() if kind != WAYS[name][1]}))
