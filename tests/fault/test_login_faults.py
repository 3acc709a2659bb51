"""Wrong logins, and TLS on one side only: told as what they are, without a password in the words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery.errors import (
    AccessDenied,
    TimedOut,
    TlsMismatch,
    Unreachable,
)
from tests.fault.proxy import Proxy
from tests.fault.told import LIMIT, PING, told_within
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired
from tests.support.waiting import until


@pytest.fixture
def proxy(valkey: Store) -> Iterator[Proxy]:
    with Proxy(valkey.port) as proxy:
        yield proxy


@pytest.mark.parametrize("login", ["", ":wrong@", "nobody:pw@"])
def test_a_wrong_login_is_denied_and_no_password_is_told(serve: Callable[..., Store], login: str) -> None:
    store = serve(options={"requirepass": "right"})
    with wired(f"redis://{login}127.0.0.1:{store.port}/0") as wire, pytest.raises(AccessDenied) as caught:
        wire.call(PING)
    assert "wrong@" not in str(caught.value)
    assert ":pw" not in str(caught.value)


def test_a_password_that_nobody_asked_for_is_denied(valkey: Store) -> None:
    with wired(f"redis://:pw@127.0.0.1:{valkey.port}/0") as wire, told_within(LIMIT, AccessDenied, "without any"):
        wire.call(PING)


def test_a_password_set_while_connected_is_denied_from_then_on(serve: Callable[..., Store]) -> None:
    store = serve()
    with wired(store.url) as wire:
        wire.call(PING)
        store.do("ACL", "SETUSER", "default", ">new", "resetpass", ">new")
        store.connect(password="new").client_kill_filter(_type="normal", skipme=False)
        with pytest.raises(AccessDenied, match="requires a password"):
            until(lambda: not wire.call(PING), seconds=2)


def test_tls_towards_a_plain_server_is_a_mismatch(valkey: Store) -> None:
    url = valkey.url.replace("redis:", "rediss:")
    # The patience of a store is that of a page; a store that is busy with other tests has to answer the handshake too.
    with wired(url, timeout=10.0) as wire, told_within(10.0, TlsMismatch, "does not speak TLS"):
        wire.call(PING)


def test_plain_towards_a_tls_server_is_a_mismatch(serve: Callable[..., Store], certificates: Path) -> None:
    store = serve("redis", tls=certificates)
    with wired(store.url.replace("rediss:", "redis:")) as wire, told_within(LIMIT, TlsMismatch, "it speaks TLS here"):
        wire.call(PING)


def test_a_certificate_of_a_stranger_is_refused(serve: Callable[..., Store], certificates: Path) -> None:
    store = serve("redis", tls=certificates)
    with wired(store.url) as wire, told_within(LIMIT, TlsMismatch, "certificate was rejected"):
        wire.call(PING)
    with wired(store.url, tls_verify=False) as wire:
        assert wire.call(PING) == [b"PONG"]


def test_a_certificate_for_another_name_is_refused(serve: Callable[..., Store], certificates: Path) -> None:
    store = serve("redis", tls=certificates)
    url = store.url.replace("127.0.0.1", "127.0.0.2")
    with wired(url, tls_ca=certificates / "ca.crt") as wire, pytest.raises((TlsMismatch, Unreachable)):
        wire.call(PING)


def test_a_missing_client_certificate_is_told(serve: Callable[..., Store], certificates: Path) -> None:
    store = serve("redis", tls=certificates)
    store.do("CONFIG", "SET", "tls-auth-clients", "yes")
    with wired(store.url, tls_ca=certificates / "ca.crt") as wire, told_within(LIMIT, TlsMismatch, "certificate"):
        wire.call(PING)
    own = {"tls_certificate": certificates / "server.crt", "tls_key": certificates / "server.key"}
    with wired(store.url, tls_ca=certificates / "ca.crt", **own) as wire:
        assert wire.call(PING) == [b"PONG"]


def test_a_silent_server_under_tls_times_out(proxy: Proxy) -> None:
    proxy.silence()
    with wired(proxy.url.replace("redis:", "rediss:")) as wire, told_within(LIMIT, TimedOut):
        wire.call(PING)
