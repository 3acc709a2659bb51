"""Which servers send their lines: known from the store, and nobody while it does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from recovery.logs import shippers
from recovery.stores.state.shared_read import windows
from tests.support.logs.log_writer import LogWriter
from tests.support.stores.stores import Store


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """What was read is kept for a second."""
    windows.forget()
    yield
    windows.forget()


def test_the_servers_that_ship_are_known(watch: Callable[..., None], state_store: Store) -> None:
    watch(UNSTALL_STATE_URL=state_store.url)
    assert not shippers.is_known()
    windows.forget()
    LogWriter(state_store, "eu-1").write("one")
    LogWriter(state_store, "eu-2").write("two")
    assert shippers.servers() == {"eu-1", "eu-2"}


def test_nobody_is_known_to_ship_while_the_store_is_away(watch: Callable[..., None], state_store: Store) -> None:
    watch(UNSTALL_STATE_URL=state_store.url)
    LogWriter(state_store, "eu-1").write("one")
    state_store.stop()
    assert not shippers.is_known()


def test_without_a_store_nobody_is_known_to_ship(watch: Callable[..., None]) -> None:
    watch()
    assert shippers.servers() == frozenset()
