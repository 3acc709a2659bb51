"""`manage.py queues`: without a server, a scheduler or a state store."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.support.stores.stores import Store
from tests.support.stuck.watching import NOW, add, bullmq, finish


def _run(*arguments: str) -> str:
    out = StringIO()
    call_command("queues", *arguments, stdout=out)
    return out.getvalue()


def test_scripts_get_json(watch: Callable[..., None], store: Store) -> None:
    bullmq(store.client, "bull:jobs")
    add(store.client, "bull:jobs", "1", "2", timestamp=NOW)
    finish(store.client, "bull:jobs", NOW, outcome="failed")
    watch(UNSTALL_REDIS_URL=store.url)
    document = json.loads(_run("--json"))
    (queue,) = document["queues"]
    assert (queue["deployment"], queue["base"], queue["library"]) == ("main", "bull:jobs", "bullmq")
    assert (queue["waiting"], queue["failed"], queue["workers"]) == (2, 1, 0)
    assert queue["oldest_waiting_at"] == NOW
    assert document["deployments"][0]["error"] is None


def test_people_get_a_table(watch: Callable[..., None], valkey: Store) -> None:
    bullmq(valkey.client, "bull:jobs")
    finish(valkey.client, "bull:jobs", *range(NOW, NOW + 1234))
    watch(UNSTALL_REDIS_URL=valkey.url)
    head, row = _run().splitlines()
    assert head.split()[:3] == ["queue", "library", "waiting"]
    assert row.split()[:3] == ["main/bull:jobs", "BullMQ", "5.81"]
    assert "1,234" in row


def test_a_name_that_could_fool_a_terminal_is_shown_harmless(watch: Callable[..., None], valkey: Store) -> None:
    bullmq(valkey.client, "bull:\x1b[31m\r\nmain/bull:other")
    watch(UNSTALL_REDIS_URL=valkey.url)
    lines = _run().splitlines()
    assert len(lines) == 2
    assert "\x1b" not in lines[1]


def test_nothing_found_is_said(watch: Callable[..., None], valkey: Store) -> None:
    watch(UNSTALL_REDIS_URL=valkey.url)
    assert _run().strip() == "No queues were found."


def test_an_unreachable_store_is_status_4_and_its_password_hidden(
    watch: Callable[..., None], serve: Callable[..., Store]
) -> None:
    gone = serve()
    gone.stop()
    watch(UNSTALL_REDIS_URL=f"redis://me:hunter2@127.0.0.1:{gone.port}/0")
    with pytest.raises(CommandError) as caught:
        _run("--json")
    assert caught.value.returncode == 4
    assert "connection refused" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_wrong_configuration_is_status_2(watch: Callable[..., None]) -> None:
    watch(UNSTALL_REDIS_URL="http://not-a-redis")
    with pytest.raises(CommandError) as caught:
        _run()
    assert caught.value.returncode == 2
    assert "UNSTALL_REDIS_URL" in str(caught.value)


def test_nothing_is_written_anywhere(watch: Callable[..., None], valkey: Store, state_store: Store) -> None:
    bullmq(valkey.client, "bull:jobs")
    before = valkey.client.keys()
    watch(UNSTALL_REDIS_URL=valkey.url, UNSTALL_STATE_URL=state_store.url)
    _run()
    assert valkey.client.keys() == before
    assert state_store.client.keys() == []


@pytest.mark.parametrize("command", ["queues", "orphans"])
def test_nothing_configured_is_not_told_as_nothing_found(watch: Callable[..., None], command: str) -> None:
    watch()
    with pytest.raises(CommandError, match="No deployment is configured") as refused:
        call_command(command)
    assert refused.value.returncode == 2
