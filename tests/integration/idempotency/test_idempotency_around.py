"""Around the ledger: the shell, the doctor, the place it may stand in, and who forgets what nobody asks for."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from recovery.config import load
from recovery.domain.idempotency import IdempotencyState
from recovery.errors import ConfigError, NotApart, StoreError
from recovery.idempotency import durability
from recovery.idempotency import ledger_commands as acts
from recovery.idempotency.store_isolation import StoreIsolation, StoreIsolationGuard, check_isolation
from recovery.management.doctor import idempotency as checkup
from recovery.models import AuditEntry
from recovery.scanners.prune import Pruner
from recovery.stores import registry
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys
from tests.support.idempotency import Desk
from tests.support.processes.processes import free_port
from tests.support.stores.stores import Store
from tests.support.stuck.watching import config_of, now_ms
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def desk(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    config_of(tmp_path, state_store, {"main": valkey})
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
    registry.reset()
    acts.guard.forget()
    return Desk(state_store.client)


def shell(*arguments: str) -> str:
    out = StringIO()
    call_command("idempotency", *arguments, stdout=out)
    return out.getvalue()


def status(*arguments: str) -> tuple[int, str]:
    """Of a call that fails."""
    with pytest.raises(CommandError) as raised:
        shell(*arguments)
    return raised.value.returncode, str(raised.value)


def other_name(store: Store) -> str:
    return store.url.replace("127.0.0.1", "0.0.0.0")


# -- the shell


def test_the_shell_lists_shows_and_releases(desk: Desk) -> None:
    assert "Nothing is claimed." in shell("list")
    token = desk.token("order:1", owner="worker-3\x1b[31m")
    desk.done("order:2", b'{"password":"hunter2"}')
    listed = shell("list")
    assert "\x1b" not in listed
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [["order:2", "completed"], ["order:1", "claimed"]]
    told = json.loads(shell("list", "--state", "claimed", "--json"))
    assert [(one["key"], one["token"], one["state"]) for one in told["keys"]] == [("order:1", token, "claimed")]
    assert json.loads(shell("list", "--match", "R:2", "--json"))["keys"][0]["key"] == "order:2"
    assert "hunter2" not in shell("show", "order:2") + shell("show", "order:2", "--json")
    assert '{"password":"<text of 7 characters>"}' in shell("show", "order:2")
    assert not AuditEntry.objects.exists()
    assert "hunter2" in shell("show", "order:2", "--reveal")
    assert [(one.actor_kind, one.act) for one in AuditEntry.objects.all()] == [("shell", "reveal")]
    told = json.loads(shell("release", "order:1", "--token", str(token), "--reason", "it died", "--json"))
    assert desk.show("order:1").state is IdempotencyState.FREE
    entry = AuditEntry.objects.get(number=told["audit"])
    assert (entry.actor_kind, entry.act, entry.reason) == ("shell", "release claim", "it died")


def test_a_revealed_result_does_not_speak_to_the_terminal(desk: Desk) -> None:
    """JSON escapes ESC and leaves the one-character codes (C1) as they are."""
    desk.done("order:1", '"\u009b2J\u202e"'.encode())
    assert shell("show", "order:1", "--reveal").endswith('"\ufffd2J\ufffd"\n')


def test_the_shell_refuses_what_it_cannot_do_with_a_status(desk: Desk, state_store: Store) -> None:
    token = desk.token("order:1")
    assert status("show", "none") == (3, "It is not claimed.")
    assert status("release", "order:1", "--token", str(token - 1), "--reason", "x")[0] == 3
    assert status("release", "order:1", "--token", str(token), "--reason", " ")[0] == 3
    assert desk.show("order:1").state is IdempotencyState.CLAIMED
    assert not AuditEntry.objects.exists()
    state_store.stop()
    assert status("list")[0] == 4


def test_a_list_goes_on_where_it_ended(desk: Desk) -> None:
    for number in range(60):
        desk.claim(f"k{number:02}")
    first = json.loads(shell("list", "--json"))
    second = json.loads(shell("list", "--json", "--after", first["next"]))
    assert second["next"] is None
    keys = [one["key"] for told in (first, second) for one in told["keys"]]
    assert keys == sorted(set(keys), reverse=True)
    assert len(keys) == 60


# -- where it stands


def test_one_address_for_both_is_refused_at_the_start(tmp_path: Path) -> None:
    url = "redis://127.0.0.1:6379/3"
    with pytest.raises(ConfigError, match="is the database of the queues of 'main'"):
        load({"UNSTALL_REDIS_URL": url, "UNSTALL_STATE_URL": url}, directory=tmp_path)


def test_two_names_for_one_database_are_found_out_by_its_run_id(state_store: Store, valkey: Store) -> None:
    same = load({"UNSTALL_REDIS_URL": other_name(state_store), "UNSTALL_STATE_URL": state_store.url})
    beside = load({"UNSTALL_REDIS_URL": other_name(state_store)[:-1] + "1", "UNSTALL_STATE_URL": state_store.url})
    apart = load({"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url})
    away = load({"UNSTALL_REDIS_URL": f"redis://127.0.0.1:{free_port()}", "UNSTALL_STATE_URL": state_store.url})
    found = []
    for config in (same, beside, apart, away):
        registry = ConnectionRegistry(config)
        found.append(check_isolation(registry))
        registry.close()
    assert found == [
        StoreIsolation(("main",)),
        StoreIsolation(beside=("main",)),
        StoreIsolation(),
        StoreIsolation(unknown=("main",)),
    ]
    assert [bool(one.trouble) for one in found] == [True, False, False, False]


def test_a_guard_refuses_where_queues_are_and_looks_anew_after_a_while(state_store: Store) -> None:
    same = load({"UNSTALL_REDIS_URL": other_name(state_store), "UNSTALL_STATE_URL": state_store.url})
    apart = load({"UNSTALL_STATE_URL": state_store.url})
    now, registries = 0.0, [ConnectionRegistry(same), ConnectionRegistry(apart)]
    guard = StoreIsolationGuard(lambda: registries[0], lambda: now)
    with pytest.raises(NotApart, match="the same database as the queues of main"):
        guard.check()
    registries.reverse()
    with pytest.raises(NotApart):
        guard.check()
    now = 31.0
    assert guard.check() == StoreIsolation()
    for one in registries:
        one.close()


def test_a_store_that_is_away_is_no_permission(state_store: Store) -> None:
    registry = ConnectionRegistry(load({"UNSTALL_STATE_URL": state_store.url}))
    state_store.stop()
    with pytest.raises(StoreError):
        StoreIsolationGuard(lambda: registry).check()
    registry.close()


# -- what it may lose


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"appendonly": "yes"}, []),
        ({}, ["has no append-only file"]),
        ({"appendonly": "yes", "maxmemory-policy": "allkeys-lfu"}, ["evicts any key, also idempotency keys"]),
        ({"appendonly": "yes", "maxmemory-policy": "volatile-ttl"}, ["evicts arbitrary keys"]),
    ],
    ids=["sound", "no file", "any key", "keys that end"],
)
@pytest.mark.parametrize("kind", ["valkey", "redis"])
def test_what_a_store_may_lose_is_read_from_it(
    serve: Callable[..., Store], kind: str, options: dict[str, str], words: list[str]
) -> None:
    found = durability.find_risks(serve(kind, options=options).client)
    assert len(found) == len(words)
    assert all(word in doubt.says for word, doubt in zip(words, found, strict=True))


def test_a_store_that_tells_nothing_is_doubted(serve: Callable[..., Store]) -> None:
    store = serve()
    store.do("ACL", "SETUSER", "mute", "on", ">secret", "~*", "+@all", "-info")
    client = store.connect(username="mute", password="secret")
    (doubt,) = durability.find_risks(client)
    assert "is unknown" in doubt.says
    client.close()


def test_the_doctor_tells_of_it(desk: Desk, valkey: Store) -> None:
    def says() -> list[tuple[str, str]]:
        return [(finding.level.value, finding.says) for finding in checkup.idempotency(registry.registry())]

    assert says() == [("ok", "Nothing is claimed.")]
    desk.token("a")
    desk.done("b")
    told = says()
    assert told[0] == ("ok", "1 claimed, 0 expired, 1 completed.")
    assert [level for level, _ in told[1:]] == ["warning"]
    valkey.stop()
    assert any(level == "warning" and words.startswith("Whether the queues of main") for level, words in says())


# -- what ends


def test_prune_forgets_what_nobody_asks_for_any_more(desk: Desk) -> None:
    kept = desk.token("kept")
    desk.done("done", b"123", keep=1)
    until(lambda: desk.show("done").state is IdempotencyState.FREE, what="its time is over")
    assert desk.store.hlen(state_keys.IDEMPOTENCY_RECORDS) == 2
    report = Pruner(registry.registry()).run(now_ms())
    assert report.count == 1
    assert desk.store.hkeys(state_keys.IDEMPOTENCY_RECORDS) == [b"kept"]
    assert desk.show("kept").claim
    assert kept == desk.show("kept").claim.token  # type: ignore[union-attr]


def test_a_look_of_prune_forgets_nothing(desk: Desk) -> None:
    desk.done("done", keep=1)
    until(lambda: desk.show("done").state is IdempotencyState.FREE, what="its time is over")
    Pruner(registry.registry()).run(now_ms(), dry_run=True)
    assert desk.store.hlen(state_keys.IDEMPOTENCY_RECORDS) == 1


# -- its settings


def test_its_settings_are_read_in_their_units(tmp_path: Path) -> None:
    toml = "[idempotency]\nkeep_days = 2\nkeep_expired_days = 1\nkeys = 500\nmegabytes = 3\n"
    (tmp_path / "unstall.toml").write_text(toml)
    found: Any = load({}, directory=tmp_path).idempotency
    day = 86_400_000
    assert (found.keep, found.linger, found.keys, found.bytes) == (2 * day, day, 500, 3 * 1024 * 1024)
    (tmp_path / "unstall.toml").write_text("[idempotency]\nkeys = 5\nkept = 1\n")
    with pytest.raises(ConfigError, match=r"idempotency.kept: is not a setting(.|\n)*idempotency.keys: is 5."):
        load({}, directory=tmp_path)
