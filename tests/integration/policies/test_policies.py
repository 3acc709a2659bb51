"""Policies: the file and what was edited, together; edits are audited, and what cannot be read lets nothing act."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, InterfaceError, connection
from django.db.models import F

from recovery import config
from recovery.actions import policy_edits
from recovery.domain.actions.types import Actor
from recovery.domain.identifiers import QueueRef, decode_name, slug
from recovery.domain.policies.policy_layers import PolicySource
from recovery.domain.policies.types import PolicyScanner, ScannerMode
from recovery.errors import BadOrder, DeploymentMissing, Forbidden, NotRecorded
from recovery.models import AuditEntry, AuditHead, PolicyLayer
from recovery.reads.audit import queries as chain
from recovery.reads.policies import queries as reads
from recovery.reads.policies.queries import LivePolicies, PolicySnapshot

pytestmark = pytest.mark.django_db

MAIL = QueueRef("main", "bull:mail")
PAY = QueueRef("main", "bull:pay")
ADA = Actor("person", "ada", "admin", "10.0.0.7", may_act=True, may_bulk=True)
OLE = Actor("person", "ole", "operator", "10.0.0.8", may_act=True)
ACTS: dict[str, Any] = {"orphan_watch": {"mode": "enabled"}}
FILE = """
[policy.stale_check]
after = 60
[[policies]]
queue = "main/bull:pay"
never = { names = ["charge"] }
"""


@pytest.fixture(autouse=True)
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "unstall.toml").write_text(FILE)
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
    monkeypatch.setenv("UNSTALL_REDIS_URL", "redis://queues")
    config.current.cache_clear()
    yield
    config.current.cache_clear()


def book() -> PolicySnapshot:
    return PolicySnapshot.open(config.current())


def edit(written: dict[str, Any], deployment: str = "", base: str = "", **more: Any) -> int:
    return policy_edits.edit(ADA, deployment, base, written, "it was agreed", **more)


def row(written: str, deployment: str = "", base: str = "") -> None:
    PolicyLayer.objects.create(deployment=deployment, base=base, written=written, by="ada", at=1)


# -- reading


def test_the_book_lays_edits_over_the_file() -> None:
    edit({"stale_check": {"most": 7}})
    found = book().of(MAIL)
    duty = found.policy.stale_check
    assert (duty.mode, duty.after, duty.most) == (ScannerMode.ENABLED, 60_000, 7)
    assert found.origin("stale_check", "after").source is PolicySource.FILE
    assert found.origin("stale_check", "most").by == "ada"
    assert found.origin("stale_check", "mode").source is PolicySource.DEFAULT


def test_an_edit_counts_where_it_was_made_and_nowhere_else() -> None:
    edit(ACTS, "main", "bull:mail")
    opened = book()
    assert opened.of(MAIL).policy.may_act(PolicyScanner.ORPHAN_WATCH)
    for other in (PAY, QueueRef("other", "bull:mail")):
        assert not opened.of(other).policy.may_act(PolicyScanner.ORPHAN_WATCH)


def test_a_queue_may_be_named_with_any_bytes() -> None:
    odd = QueueRef("main", decode_name(b"bull:\xff\x00/\n"))
    edit(ACTS, odd.deployment, odd.base)
    assert book().of(odd).policy.may_act(PolicyScanner.ORPHAN_WATCH)
    assert reads.edited_values(odd.deployment, odd.base) == ACTS
    assert [one.place for one in reads.load_edits()] == [("main", odd.base)]


def test_what_is_written_is_read_back_for_a_form() -> None:
    edit(ACTS, "main")
    assert reads.edited_values("main", "") == ACTS
    assert reads.edited_values("", "") == {}


@pytest.mark.parametrize(
    "written",
    [
        '{"orphan_watch": {"mode": "enabled", "cautiously": true}}',
        '{"never": {"owners": ["pay"]}}',
        "[]",
        "not JSON",
        "[" * 100_000,
        '{"stale_check": {"most": 1e999}}',
    ],
    ids=lambda written: written[:30],
)
def test_what_cannot_be_read_lets_nothing_act_that_it_covers(written: str) -> None:
    edit(ACTS)
    row(written, "main", slug("bull:mail"))
    opened = book()
    (trouble,) = opened.trouble
    assert trouble.startswith("The edited policy for bull:mail cannot be read, so no scanner acts")
    found = opened.of(MAIL)
    assert not any(found.policy.may_act(scanner) for scanner in PolicyScanner)
    assert found.withheld == (trouble,)
    assert found.sentence(PolicyScanner.STALE_CHECK, 1) == trouble
    assert found.origin("stale_check", "mode").base == "bull:mail"
    assert opened.of(PAY).policy.may_act(PolicyScanner.ORPHAN_WATCH)
    assert opened.of(PAY).withheld == ()


def test_nothing_of_what_cannot_be_read_counts() -> None:
    row('{"stale_check": {"most": 7}, "from_tomorrow": 1}')
    assert book().of(MAIL).policy.stale_check.most == 500


def test_an_edit_of_a_queue_whose_name_cannot_be_read_covers_its_deployment() -> None:
    row(json.dumps(ACTS), "main", "bull ~ZZ")
    opened = book()
    assert opened.of(PAY).withheld
    assert opened.of(QueueRef("other", "bull:pay")).policy.may_act(PolicyScanner.STALE_CHECK)


def test_the_sentence_for_the_audit_says_what_allows_it_and_who_said_so() -> None:
    edit(ACTS, "main", "bull:mail")
    at = PolicyLayer.objects.get().at
    said = book().of(MAIL).sentence(PolicyScanner.ORPHAN_WATCH, at + 61_000)
    assert said == "Enabled, at most 500 jobs per run (edited by ada 1 min ago, for bull:mail)."
    said = book().of(MAIL).sentence(PolicyScanner.STALE_CHECK, at)
    assert said == "Enabled after 1 min, at most 500 jobs per run (by default)."


def test_a_long_run_hears_of_an_edit() -> None:
    clock = [0.0]
    following = LivePolicies(config.current(), life=1.0, clock=lambda: clock[0])
    edit(ACTS)
    assert not following.of(MAIL).policy.may_act(PolicyScanner.ORPHAN_WATCH)
    clock[0] = 1.0
    assert following.of(MAIL).policy.may_act(PolicyScanner.ORPHAN_WATCH)


def test_while_the_database_cannot_be_asked_the_last_book_counts() -> None:
    clock = [0.0]
    edit(ACTS)
    following = LivePolicies(config.current(), life=1.0, clock=lambda: clock[0])
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE recovery_policylayer RENAME TO away")
    clock[0] = 5.0
    with pytest.raises(DatabaseError):
        book()
    assert following.of(MAIL).policy.may_act(PolicyScanner.ORPHAN_WATCH)


def test_nor_when_its_connection_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the driver says of one that was cut while it was not in use."""

    def gone(_: object) -> None:
        raise InterfaceError("connection already closed")

    clock = [0.0]
    edit(ACTS)
    following = LivePolicies(config.current(), life=1.0, clock=lambda: clock[0])
    monkeypatch.setattr(PolicySnapshot, "open", gone)
    clock[0] = 5.0
    assert following.of(MAIL).policy.may_act(PolicyScanner.ORPHAN_WATCH)


# -- editing


def test_an_edit_is_in_the_audit_with_what_it_changed() -> None:
    edit(ACTS, "main", "bull:mail")
    number = edit(ACTS | {"orphan_watch": {"mode": "enabled", "most": 7}}, "main", "bull:mail")
    entry = chain.entry(number).entry
    assert (entry.link.act, entry.link.actor, entry.link.reason, entry.queue) == (
        "policy",
        "ada",
        "it was agreed",
        MAIL,
    )
    assert entry.body == {
        "place": "bull:mail in main",
        "changes": ["orphan-watch: Enabled, at most 500 jobs per run. → Enabled, at most 7 jobs per run."],
        "before": ACTS,
        "after": {"orphan_watch": {"mode": "enabled", "most": 7}},
    }
    assert chain.verify().is_sound


def test_what_is_taken_away_counts_no_more_and_is_in_the_audit() -> None:
    edit(ACTS, "main")
    number = policy_edits.clear(ADA, "main", "", "not any more")
    assert not PolicyLayer.objects.exists()
    assert not book().of(MAIL).policy.may_act(PolicyScanner.ORPHAN_WATCH)
    body = chain.entry(number).entry.body
    assert (body["before"], body["after"], body["place"]) == (ACTS, {}, "all queues of main")


def test_what_says_nothing_is_no_layer() -> None:
    edit(ACTS)
    edit({"never": {"names": []}, "backoff": {}})
    assert not PolicyLayer.objects.exists()


def test_an_edit_takes_the_right_to_act_in_bulk() -> None:
    for call in (
        lambda: policy_edits.edit(OLE, "", "", ACTS, "why not"),
        lambda: policy_edits.preview(OLE, "", "", ACTS),
        lambda: policy_edits.clear(OLE, "", "", "why not"),
    ):
        with pytest.raises(Forbidden):
            call()
    assert not PolicyLayer.objects.exists()


def test_all_problems_are_told_and_nothing_is_written() -> None:
    with pytest.raises(BadOrder) as caught:
        edit({"orphan_watch": {"mode": "on"}, "auto_retry": {"release": True, "after": -1}})
    told = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in told] == [
        "orphan_watch.mode",
        "auto_retry.release",
        "auto_retry.after",
    ]
    assert not PolicyLayer.objects.exists()
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("reason", ["", "  \n", "x" * 501])
def test_an_edit_needs_a_reason(reason: str) -> None:
    with pytest.raises(BadOrder, match="reason"):
        policy_edits.edit(ADA, "", "", ACTS, reason)


def test_a_place_has_to_be_one() -> None:
    with pytest.raises(DeploymentMissing):
        edit(ACTS, "shop")
    with pytest.raises(BadOrder, match="too long"):
        edit(ACTS, "main", "b" * 1025)


def test_an_edit_that_changes_nothing_is_refused() -> None:
    edit(ACTS)
    with pytest.raises(BadOrder, match="nothing would change"):
        edit({"orphan_watch": {"mode": "enabled"}})
    with pytest.raises(BadOrder, match="nothing would change"):
        policy_edits.clear(ADA, "main", "", "tidy")
    assert AuditEntry.objects.count() == 1


def test_what_was_edited_since_it_was_shown_is_not_overwritten() -> None:
    edit(ACTS)
    with pytest.raises(BadOrder, match="meanwhile"):
        edit({"orphan_watch": {"mode": "dry-run"}}, seen={})
    edit({"orphan_watch": {"mode": "dry-run"}}, seen=ACTS)


def test_without_its_note_in_the_audit_nothing_is_changed() -> None:
    edit(ACTS)
    AuditHead.objects.update(number=F("number") - 1)  # what lags behind can take no entry
    with pytest.raises(NotRecorded):
        edit({"orphan_watch": {"mode": "dry-run"}})
    assert reads.edited_values("", "") == ACTS


def test_an_edit_that_is_too_long_belongs_into_the_file() -> None:
    names = [f"{number:03}{'x' * 400}" for number in range(400)]
    with pytest.raises(BadOrder, match="put a longer one in the file"):
        edit({"never": {"names": names}})


def test_what_cannot_be_read_can_be_edited_anew_and_taken_away() -> None:
    row("not JSON", "main")
    edit(ACTS, "main")
    assert book().of(MAIL).policy.may_act(PolicyScanner.ORPHAN_WATCH)
    PolicyLayer.objects.update(written="[]")
    policy_edits.clear(ADA, "main", "", "mended")
    assert book().trouble == ()


# -- what an edit would change


def test_a_preview_says_what_would_change_and_changes_nothing() -> None:
    found = policy_edits.preview(ADA, "main", "bull:mail", ACTS)
    assert found.changes == ("orphan-watch: Dry run, at most 500 jobs per run. → Enabled, at most 500 jobs per run.",)
    assert (found.problems, found.notes) == ((), ())
    assert not PolicyLayer.objects.exists()


def test_a_preview_names_each_problem_by_its_field() -> None:
    found = policy_edits.preview(ADA, "", "", {"orphan_watch": {"mode": "on", "most": 7}})
    assert [problem.key for problem in found.problems] == ["orphan_watch.mode"]


def test_a_preview_says_that_arming_takes_a_note() -> None:
    armed = {"auto_retry": {"mode": "enabled"}}
    (note,) = policy_edits.preview(ADA, "", "", armed).notes
    assert note.startswith("auto-retry: It is enabled, but the idempotency note is not set")
    assert policy_edits.preview(ADA, "", "", armed | {"idempotency": "sent once"}).notes == ()


def test_a_preview_names_the_places_where_something_else_stays() -> None:
    edit({"orphan_watch": {"mode": "dry-run"}}, "main", "bull:mail")
    edit({"orphan_watch": {"mode": "dry-run"}}, "", "bull:pay")
    edit({"orphan_watch": {"most": 3}}, "main", "bull:other")
    row('{"orphan_watch": {"mode": "dry-run"}}', "shop", slug("bull:mail"))
    (note,) = policy_edits.preview(ADA, "main", "", ACTS).notes
    assert note == "Other policies stay in effect for bull:pay in any deployment, bull:mail in main."


def test_what_the_file_forbids_no_edit_allows() -> None:
    edit({"never": {"names": ["refund"]}}, "main", "bull:pay")
    assert book().of(PAY).policy.never.names == {"charge", "refund"}
    policy_edits.clear(ADA, "main", "bull:pay", "all of it")
    assert book().of(PAY).policy.never.names == {"charge"}
