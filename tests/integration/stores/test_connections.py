"""The registry, and the state store's clients: bounded, quiet towards ACLs, told in our own words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery import config
from recovery.config import Config, load
from recovery.domain.identifiers import QueueRef
from recovery.errors import AccessDenied, ConfigError, DeploymentMissing, StoreError, TimedOut, Unreachable
from recovery.stores import registry
from recovery.stores.redis import redis_errors
from recovery.stores.redis.client import SingleServerClient
from recovery.stores.redis.cluster import ClusterClient
from recovery.stores.redis.sentinel import SentinelClient
from recovery.stores.state import async_client, state_keys
from tests.support.patience import patience
from tests.support.stores.stores import Store


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    registry.reset()
    yield monkeypatch
    registry.reset()


def test_a_wire_is_made_once(valkey: Store) -> None:
    connections = registry.ConnectionRegistry(load({"UNSTALL_REDIS_URL": valkey.url}))
    assert connections.wire("main") is connections.wire("main")
    connections.close()


def test_each_mode_has_its_wire(tmp_path: Path) -> None:
    (tmp_path / "unstall.toml").write_text(
        "[[deployments]]\nname='a'\nurl='redis://h'\n[[deployments]]\nname='b'\nurl='redis+sentinel://h/m'\n"
        "[[deployments]]\nname='c'\nurl='redis+cluster://k'\n"
    )
    connections = registry.ConnectionRegistry(load({}, directory=tmp_path))
    assert [type(connections.wire(name)) for name in "abc"] == [SingleServerClient, SentinelClient, ClusterClient]


def test_an_unknown_deployment_is_missing() -> None:
    with pytest.raises(DeploymentMissing):
        registry.ConnectionRegistry(Config()).wire("nowhere")


def test_without_a_state_store_the_remedy_is_told() -> None:
    with pytest.raises(ConfigError, match=r"UNSTALL_STATE_URL.*manage\.py up"):
        registry.ConnectionRegistry(Config()).state()
    with pytest.raises(ConfigError, match="UNSTALL_STATE_URL"):
        async_client.state_client(Config())


def test_the_process_has_one_registry_until_it_is_reset(fresh: pytest.MonkeyPatch, valkey: Store) -> None:
    fresh.setenv("UNSTALL_REDIS_URL", valkey.url)
    first = registry.registry()
    assert first is registry.registry()
    assert first.wire("main").call([("PING",)]) == [b"PONG"]
    fresh.setenv("UNSTALL_ENVIRONMENT", "other")
    registry.reset()
    assert registry.registry() is not first
    assert config.current().environment == "other"


def test_a_closed_registry_works_again(valkey: Store) -> None:
    connections = registry.ConnectionRegistry(load({"UNSTALL_REDIS_URL": valkey.url}))
    connections.wire("main").call([("PING",)])
    connections.close()
    assert connections.wire("main").call([("PING",)]) == [b"PONG"]
    connections.close()


@pytest.fixture
def stored(serve: Callable[..., Store]) -> Callable[[Store, str], registry.ConnectionRegistry]:
    def connect(store: Store, url: str = "") -> registry.ConnectionRegistry:
        return registry.ConnectionRegistry(load({"UNSTALL_STATE_URL": url or store.url}))

    return connect


def test_the_state_store_is_spoken_to_by_tcp_socket_and_tls(
    serve: Callable[..., Store], certificates: Path, tmp_path: Path
) -> None:
    for store in (serve(), serve(by_socket=True), serve("redis", tls=certificates)):
        tls = f"tls_ca = '{certificates}/ca.crt'" if store.tls else ""
        (tmp_path / "unstall.toml").write_text(f"[state]\nurl = '{store.url}'\n{tls}\n")
        connections = registry.ConnectionRegistry(load({}, directory=tmp_path))
        assert connections.state().set("a", b"\xff")
        assert connections.state().get("a") == b"\xff"
        connections.close()


def test_session_tickets_do_not_spoil_a_tls_connection(
    serve: Callable[..., Store], certificates: Path, tmp_path: Path
) -> None:
    store = serve("redis", tls=certificates)
    (tmp_path / "unstall.toml").write_text(f"[state]\nurl = '{store.url}'\ntls_ca = '{certificates}/ca.crt'\n")
    config = load({}, directory=tmp_path)
    for _ in range(12):
        connections = registry.ConnectionRegistry(config)
        assert connections.state().ping()
        connections.close()


def test_the_state_stores_client_says_nothing_that_an_acl_may_refuse(serve: Callable[..., Store]) -> None:
    store = serve()
    store.do("ACL", "SETUSER", "own", "on", ">pw", "~unstall:*", "-@all", "+get", "+set")
    connections = registry.ConnectionRegistry(load({"UNSTALL_STATE_URL": store.url.replace("//", "//own:pw@")}))
    assert connections.state().set(state_keys.SNAPSHOT, b"x")
    log = store.do("ACL", "LOG")
    assert log == []
    connections.close()


def test_a_hung_state_store_times_out(state_store: Store) -> None:
    connections = registry.ConnectionRegistry(load({"UNSTALL_STATE_URL": state_store.url}))
    store = connections.state()
    store.ping()
    state_store.pause()
    started = time.monotonic()
    with pytest.raises(TimedOut) as caught, redis_errors.guarded(store):
        store.get("a")
    assert time.monotonic() - started < patience(1.4)
    assert caught.value.target == state_store.url
    state_store.resume()
    connections.close()


async def test_the_loops_client_is_bounded_too(state_store: Store) -> None:
    client = async_client.state_client(load({"UNSTALL_STATE_URL": state_store.url}))
    assert await client.ping()
    state_store.pause()
    started = time.monotonic()
    with pytest.raises(TimedOut), redis_errors.guarded(client):
        await client.get("a")
    assert time.monotonic() - started < patience(1.4)
    state_store.resume()
    assert await client.ping()
    await client.aclose()


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("redis://127.0.0.1:1/0", Unreachable, "refused"),
        ("redis://no-such-host.invalid/0", Unreachable, "host"),
        ("unix:///none/such.sock", Unreachable, "no such socket"),
    ],
)
def test_an_unreachable_state_store_is_told_in_our_words(url: str, kind: type[StoreError], words: str) -> None:
    store = registry.ConnectionRegistry(load({"UNSTALL_STATE_URL": url})).state()
    with pytest.raises(kind, match=words), redis_errors.guarded(store):
        store.ping()


def test_a_wrong_password_of_the_state_store_is_denied_and_not_told(serve: Callable[..., Store]) -> None:
    store = serve(options={"requirepass": "right"})
    client = registry.ConnectionRegistry(load({"UNSTALL_STATE_URL": store.url.replace("//", "//:hunter2@")})).state()
    with pytest.raises(AccessDenied) as caught, redis_errors.guarded(client):
        client.ping()
    assert "hunter2" not in str(caught.value)


def test_the_deployment_of_a_key_is_known() -> None:
    ref = QueueRef("shop", "bull:a/b:c")
    assert state_keys.deployment_of(state_keys.discovered_queues("shop")) == "shop"
    assert state_keys.deployment_of(state_keys.history(ref, "minutes")) == "shop"
