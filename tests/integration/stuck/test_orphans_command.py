"""`manage.py orphans`: one pass by itself, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from recovery.models import Incident
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make, active, contents

pytestmark = pytest.mark.django_db(transaction=True)
BASE = "bull:jobs"
FATE = (
    "Never recovered: no worker is connected, so no stalled check runs. "
    "Stale-check is enabled, but the leader is unknown."
)


def _run(*arguments: str) -> str:
    out = StringIO()
    call_command("orphans", *arguments, stdout=out)
    return out.getvalue()


def test_scripts_get_json(watch: Callable[..., None], store: Store) -> None:
    active(store, BASE, "1", "2")
    store.client.set(f"{BASE}:2:lock", "w:1", px=30_000)
    watch(UNSTALL_REDIS_URL=store.url)
    document = json.loads(_run("--json"))
    assert (document["looked"], document["stuck"], document["needing_a_person"]) == (2, 2, 2)
    assert document["counts"] == {"abandoned": 1, "worker-lost": 1}
    abandoned, doomed = document["orphans"]
    assert (abandoned["job"], abandoned["verdict"], abandoned["suggests"]) == ("1", "abandoned", "requeue")
    assert abandoned["fate"] == FATE
    assert (doomed["job"], doomed["verdict"], doomed["suggests"]) == ("2", "worker-lost", "release")
    assert document["queues"][0]["stalled_check"]["is_dead"] is True


def test_people_get_a_paragraph_a_job(watch: Callable[..., None], valkey: Store) -> None:
    active(valkey, BASE, "1")
    watch(UNSTALL_REDIS_URL=valkey.url)
    summary, _, head, why, fate, suggestion = _run().splitlines()
    assert summary == "1 active job checked: 1 abandoned."
    assert head.startswith("abandoned  main/bull:jobs#1  mail")
    assert "has had no lock" in why
    assert fate.split("expected")[1].strip() == FATE
    assert suggestion.split() == ["suggest", "requeue"]


def test_nothing_stuck_is_said_with_how_much_was_looked_at(watch: Callable[..., None], valkey: Store) -> None:
    watch(UNSTALL_REDIS_URL=valkey.url)
    assert _run().strip() == "0 active jobs checked: nothing is stuck."


def test_one_pass_alone_proves_no_orphan_of_an_older_library(watch: Callable[..., None], valkey: Store) -> None:
    active(valkey, BASE, "1", flavour="bull")
    watch(UNSTALL_REDIS_URL=valkey.url)
    assert json.loads(_run("--json"))["counts"] == {"unlocked": 1}


def test_with_the_schedulers_memory_it_does(
    watch: Callable[..., None], valkey: Store, state_store: Store, watch_bench: Make
) -> None:
    active(valkey, BASE, "1", flavour="bull")
    one = watch_bench(valkey)
    one.discover()
    one.look(later=-40_000)
    watch(UNSTALL_REDIS_URL=valkey.url, UNSTALL_STATE_URL=state_store.url)
    assert json.loads(_run("--json"))["counts"] == {"abandoned": 1}


def test_nothing_is_written_anywhere(watch: Callable[..., None], valkey: Store, state_store: Store) -> None:
    active(valkey, BASE, "1")
    before = contents(valkey)
    watch(UNSTALL_REDIS_URL=valkey.url, UNSTALL_STATE_URL=state_store.url)
    _run()
    assert contents(valkey) == before
    assert state_store.client.keys() == []
    assert not Incident.objects.exists()


def test_a_name_that_could_fool_a_terminal_is_shown_harmless(watch: Callable[..., None], valkey: Store) -> None:
    active(valkey, BASE, "\x1b[31m\r\nheld", name="\x1b]0;x\x07")
    watch(UNSTALL_REDIS_URL=valkey.url)
    said = _run()
    assert "\x1b" not in said
    assert len(said.splitlines()) == 6


def test_an_unreachable_store_is_status_4(watch: Callable[..., None], serve: Callable[..., Store]) -> None:
    gone = serve()
    gone.stop()
    watch(UNSTALL_REDIS_URL=f"redis://me:hunter2@127.0.0.1:{gone.port}/0")
    with pytest.raises(CommandError) as caught:
        _run("--json")
    assert caught.value.returncode == 4
    assert "hunter2" not in str(caught.value)


def test_a_wrong_configuration_is_status_2(watch: Callable[..., None]) -> None:
    watch(UNSTALL_REDIS_URL="http://not-a-redis")
    with pytest.raises(CommandError) as caught:
        _run()
    assert caught.value.returncode == 2
