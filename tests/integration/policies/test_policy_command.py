"""`manage.py policy`: what applies and from where, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from recovery.models import PolicyLayer
from recovery.reads.queues import snapshot_store
from tests.support.stores.stores import Store
from tests.support.stuck import samples

pytestmark = pytest.mark.django_db
FILE = """
[[policies]]
deployment = "main"
orphan_watch = { mode = "enabled" }
[[policies]]
queue = "main/bull:mail"
never = { names = ["charge"] }
"""


@pytest.fixture(autouse=True)
def configured(watch: Callable[..., None], tmp_path: Path) -> None:
    """The store is never asked."""
    (tmp_path / "policy.toml").write_text(FILE)
    watch(UNSTALL_REDIS_URL="redis://127.0.0.1:1", UNSTALL_CONFIG=str(tmp_path / "policy.toml"))


def _run(*arguments: str) -> str:
    out = StringIO()
    call_command("policy", *arguments, stdout=out)
    return out.getvalue()


def edited(written: str, base: str = "") -> None:
    PolicyLayer.objects.create(deployment="main", base=base, written=written, by="ada", at=1_700_000_000_000)


def test_people_read_what_applies_to_a_queue_and_who_said_so() -> None:
    edited('{"stale_check": {"most": 7}}', "bull:mail")
    lines = [line.strip() for line in _run("bull:mail").splitlines()]
    assert lines[:3] == [
        "main/bull:mail",
        "orphan-watch: Enabled, at most 500 jobs per run.",
        "mode: in the file, for all queues of main; the rest: by default",
    ]
    assert lines[3] == "stale-check: Enabled after 15 min, at most 7 jobs per run."
    assert lines[4].startswith("most: edited by ada ")
    assert "never auto-retried: Jobs named charge." in lines


def test_without_a_queue_the_places_are_listed_where_something_else_is_said() -> None:
    head, *_, first, second = _run().splitlines()
    assert head == "All queues without a policy of their own"
    assert [first.strip(), second.strip()] == ["all queues of main", "main/bull:mail"]
    assert "orphan-watch: Dry run" in _run()


def test_scripts_get_json() -> None:
    document = json.loads(_run("main/bull:mail", "--json"))
    assert document["enabled"] == {
        "orphan-watch": True,
        "stale-check": True,
        "auto-retry": False,
        "startup-sweep": True,
    }
    assert document["policy"]["never"] == {"names": ["charge"], "signatures": []}
    assert {
        "path": ["orphan_watch", "mode"],
        "source": "file",
        "deployment": "main",
        "base": "",
        "by": None,
        "at": None,
    } in (document["origins"])


def test_an_edit_that_cannot_be_read_is_told() -> None:
    edited("[]")
    assert "The edited policy for main cannot be read, so no scanner acts" in _run("bull:mail")
    document = json.loads(_run("bull:mail", "--json"))
    assert (set(document["enabled"].values()), len(document["trouble"])) == ({False}, 1)
    assert "cannot be read, so" in _run()


def test_a_wrong_call_is_told(watch: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text(FILE + '[[deployments]]\nname = "two"\nurl = "redis://127.0.0.1:2"\n')
    watch(UNSTALL_REDIS_URL="redis://127.0.0.1:1", UNSTALL_CONFIG=str(tmp_path / "policy.toml"))
    with pytest.raises(CommandError, match="Configured: main, two") as caught:
        _run("bull:mail")
    assert caught.value.returncode == 2
    assert _run("two/bull:mail").startswith("two/bull:mail\n")


def test_a_queue_that_is_not_there_is_told_so(
    watch: Callable[..., None], state_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    watch(UNSTALL_REDIS_URL="redis://127.0.0.1:1", UNSTALL_STATE_URL=state_store.url)
    assert "stale-check" in _run("main/no:such")
    assert capsys.readouterr().err == "", "nobody can say it without a snapshot"
    snapshot_store.publish(state_store.client, samples.snapshot(samples.queue("bull:mail")))
    assert "stale-check" in _run("main/no:such")
    assert "There is no queue main/no:such now" in capsys.readouterr().err
    _run("bull:mail")
    assert capsys.readouterr().err == ""


def test_a_database_that_cannot_be_asked_is_told() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE recovery_policylayer RENAME TO away")
    with pytest.raises(CommandError, match="The database does not answer") as caught:
        _run()
    assert caught.value.returncode == 4
