"""/policies of the API: what holds, where it comes from, and editing it with the rules and the audit of the page."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.accounts.token_scopes import TokenScope
from recovery.domain.identifiers import QueueRef, decode_name, slug
from recovery.models import AuditEntry, PolicyLayer
from recovery.reads.policies import queries as reads
from tests.support.machines import Machine, refused, told
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db

QUEUE = "main/bull:mail"
ACTS: dict[str, Any] = {"orphan_watch": {"mode": "enabled", "after": 2.5, "release": True}}


@pytest.fixture
def machine(desk: Desk) -> Machine:
    return Machine(TokenScope.READ, TokenScope.BULK)


def put(machine: Machine, **changed: Any) -> Any:
    body = {"queue": QUEUE, "policy": ACTS, "reason": "it was agreed"} | changed
    return machine.send("PUT", "policies", body=body)


def test_by_default_it_says_what_holds_for_all_queues(machine: Machine) -> None:
    found = told(machine.get("policies"))
    assert (found["queue"], found["deployment"], found["edited"], found["origins"]) == (None, None, {}, [])
    assert {duty["scanner"]: duty["enabled"] for duty in found["scanners"]} == {
        "orphan-watch": False,
        "stale-check": True,
        "auto-retry": False,
        "startup-sweep": True,
    }
    assert found["scanners"][1]["says"] == "Enabled after 15 min, at most 500 jobs per run (by default)."
    assert found["policy"]["stale_check"] == {"mode": "enabled", "after": 900, "most": 500, "release": False}
    assert found["policy"]["backoff"]["*"]["attempts"] == 5


def test_an_edit_holds_for_its_queue_and_says_what_it_changed(machine: Machine) -> None:
    done = told(put(machine))
    words = "Dry run, at most 500 jobs per run. → Enabled after 2 s, at most 500 jobs per run."
    assert done["changes"] == [f"orphan-watch: {words} Releases locks whose worker is gone."]
    assert done["audit"] == AuditEntry.objects.get().number
    found = told(machine.get("policies", queue=QUEUE))
    assert (found["queue"]["id"], found["edited"]) == ("bull:mail", ACTS)
    assert found["policy"]["orphan_watch"] == {"mode": "enabled", "after": 2.5, "most": 500, "release": True}
    origin = found["origins"][0]
    assert (origin["path"], origin["source"], origin["by"]) == (["orphan_watch", "after"], "page", "machine")
    assert [layer["queue"]["id"] for layer in found["layers"]] == ["bull:mail"]
    assert told(machine.get("policies", queue="main/bull:pay"))["scanners"][0]["enabled"] is False


def test_what_is_read_can_be_written_as_it_is(machine: Machine) -> None:
    told(put(machine))
    whole = told(machine.get("policies", queue=QUEUE))["policy"]
    assert told(put(machine, policy=whole))["changes"] == []
    assert told(machine.get("policies", queue=QUEUE))["policy"] == whole


def test_the_same_edit_twice_is_noted_once(machine: Machine) -> None:
    told(put(machine))
    assert told(put(machine))["audit"] is None
    assert told(put(machine, queue="", policy={}))["audit"] is None
    assert AuditEntry.objects.count() == 1


def test_an_empty_policy_takes_the_edit_away(machine: Machine) -> None:
    told(put(machine, queue="", deployment="main"))
    assert told(machine.get("policies", deployment="main"))["scanners"][0]["enabled"] is True
    told(put(machine, queue="", deployment="main", policy={}))
    assert not PolicyLayer.objects.exists()


def test_a_dry_run_changes_nothing(machine: Machine) -> None:
    done = told(put(machine, dry_run=True, policy={"auto_retry": {"mode": "enabled"}}, reason=""))
    assert done["notes"][0].startswith("auto-retry: It is enabled, but the idempotency note is not set")
    assert (done["audit"], done["problems"], PolicyLayer.objects.count()) == (None, [], 0)
    done = told(put(machine, dry_run=True, policy={"orphan_watch": {"mode": "on"}}))
    assert done["problems"] == ['orphan_watch.mode: has an unexpected value. Write "dry-run" or "enabled".']


def test_an_edit_goes_by_what_was_seen(machine: Machine) -> None:
    told(put(machine, seen={}))
    refused(put(machine, policy={"orphan_watch": {"mode": "dry-run"}}, seen={}), 422, "bad_order")
    told(put(machine, policy={"orphan_watch": {"mode": "dry-run"}}, seen=ACTS))


@pytest.mark.parametrize(
    ("changed", "status", "code"),
    [
        ({"policy": {"orphan_watch": {"mode": "on"}}}, 422, "bad_order"),
        ({"policy": {"orphan_watch": {"most": True}}}, 422, "bad_order"),
        ({"policy": {"stale_check": {"after": float("nan")}}}, 422, "bad_order"),
        ({"policy": {"auto_retry": {"release": True}}}, 422, "bad_order"),
        ({"policy": []}, 422, "invalid"),
        ({"policy": {"never": {"names": ["\ud800"]}}}, 422, "bad_order"),
        ({"policy": {"backoff": {"\ud800": {}}}}, 422, "bad_order"),
        ({"policy": {"\ud800": {}}}, 422, "bad_order"),
        ({"policy": {"idempotency": "\ud800"}}, 422, "bad_order"),
        ({"reason": ""}, 422, "bad_order"),
        ({"queue": "shop/bull:mail"}, 404, "deployment_missing"),
        ({"queue": "bull:mail"}, 422, "invalid"),
        ({"queue": "main/b~ZZ"}, 422, "invalid"),
        ({"queue": "main/b~41"}, 404, "queue_missing"),
        ({"deployment": "shop"}, 404, "queue_missing"),
        ({"surprise": 1}, 422, "invalid"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_edit_that_makes_no_sense_is_told_why(
    machine: Machine, changed: dict[str, Any], status: int, code: str
) -> None:
    refused(put(machine, **changed), status, code)
    assert not PolicyLayer.objects.exists()
    assert not AuditEntry.objects.exists()


def test_names_of_any_bytes_come_back_as_they_are(machine: Machine) -> None:
    odd = QueueRef("main", decode_name(b"bull:\xff\n"))
    policy = {"never": {"names": ["\udcff<b>"]}}
    told(put(machine, queue=f"main/{slug(odd.base)}", policy=policy))
    found = told(machine.get("policies", queue=f"main/{slug(odd.base)}"))
    assert (found["queue"]["id"], found["edited"]) == (slug(odd.base), policy)
    assert reads.edited_values("main", odd.base) == policy


def test_an_edit_that_cannot_be_read_is_trouble(machine: Machine) -> None:
    PolicyLayer.objects.create(deployment="main", base="", written='{"never": {"owners": []}}', by="ada", at=1)
    found = told(machine.get("policies", queue=QUEUE))
    assert not any(duty["enabled"] for duty in found["scanners"])
    assert found["trouble"][0].startswith("The edited policy for main cannot be read, so no scanner acts: never.owners")
