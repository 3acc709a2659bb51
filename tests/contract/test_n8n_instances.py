"""n8n's registry in a real Redis: what n8n writes is read, and what it never writes is not believed."""

from __future__ import annotations

import json

import pytest

from recovery.backends.bull import n8n_instances
from recovery.domain.n8n.instances import InstanceRegistry, summary
from recovery.stores.redis.reply_limits import MIB
from tests.support.n8n.n8n_instances import HEAD, register, unregister
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.stuck.watching import now_ms


def read(store: Store, prefix: str = "n8n") -> InstanceRegistry:
    with wired(store.url) as wire:
        return n8n_instances.read(wire, prefix, now_ms())


def test_every_process_is_read_with_its_times_by_the_clock_of_redis(valkey: Store) -> None:
    register(valkey.client, "m1", "main")
    register(valkey.client, "w1", beat=20, clock=3600, poolName="gpu")
    register(valkey.client, "h1", "webhook", version="2.41.2")
    found = read(valkey)
    assert (found.fault, found.unknown, found.versions) == ("", 0, ("2.41.1", "2.41.2"))
    assert summary(found.instances) == "n8n 2.41.1, 2.41.2: 1 main, 1 worker, 1 webhook processor"
    main, worker = (next(one for one in found.instances if one.key == key) for key in ("m1", "w1"))
    assert (main.is_leader, main.host, worker.pool, worker.is_leader) == (True, "main-m1", "gpu", False)
    assert worker.works_on("jobs-gpu")
    assert not worker.works_on("jobs")
    assert worker.seen_at == pytest.approx(now_ms() - 20_000, abs=3_000), "its host's clock is an hour ahead"
    assert worker.registered_at == pytest.approx(now_ms() - 600_000, abs=3_000)


def test_a_key_that_has_ended_is_told_from_one_that_was_taken_out(valkey: Store) -> None:
    register(valkey.client, "w1")
    register(valkey.client, "w2")
    register(valkey.client, "w3")
    valkey.client.delete(f"{HEAD}w1")
    unregister(valkey.client, "w2")
    found = read(valkey)
    assert ({one.key for one in found.instances}, found.expired) == ({"w3"}, frozenset({"w1"}))


def test_an_n8n_without_a_registry_has_no_processes_there(valkey: Store) -> None:
    assert read(valkey) == InstanceRegistry()
    register(valkey.client, "w1")
    assert read(valkey, "other") == InstanceRegistry()


@pytest.mark.parametrize(
    "facts",
    [
        {"schemaVersion": 2},
        {"instanceKey": "another"},
        {"version": 7},
        {"lastSeen": "now"},
        {"registeredAt": 1e300},
        {"hostId": "x" * 5_000},
    ],
)
def test_a_registration_of_another_form_is_counted_as_unknown(valkey: Store, facts: dict[str, object]) -> None:
    register(valkey.client, "w1", **facts)
    register(valkey.client, "w2")
    found = read(valkey)
    assert ([one.key for one in found.instances], found.unknown, found.expired) == (["w2"], 1, frozenset())


def test_what_others_planted_is_not_fetched(valkey: Store) -> None:
    valkey.client.set(f"{HEAD}big", b"x" * (2 * MIB), px=60_000)
    valkey.client.hset(f"{HEAD}hash", "a", "b")
    valkey.client.set(f"{HEAD}forever", json.dumps({"schemaVersion": 1}))
    for member in (f"{HEAD}big", f"{HEAD}hash", f"{HEAD}forever", "bull:jobs:1", f"{HEAD}a:b", f"{HEAD}{'y' * 200}"):
        valkey.client.sadd(f"{HEAD}members", member)
    register(valkey.client, "w1")
    found = read(valkey)
    assert ([one.key for one in found.instances], found.unknown, found.fault) == (["w1"], 6, "")


def test_a_registry_with_more_members_than_any_n8n_has_is_not_read(valkey: Store) -> None:
    valkey.client.sadd(f"{HEAD}members", *(f"{HEAD}{number}" for number in range(n8n_instances.MEMBERS_LIMIT + 1)))
    assert read(valkey).fault == "n8n's registry has 1,001 members, more than are read."


def test_a_key_of_another_kind_and_a_refusal_are_said(valkey: Store) -> None:
    valkey.client.set(f"{HEAD}members", "x")
    assert "WRONGTYPE" in read(valkey).fault
