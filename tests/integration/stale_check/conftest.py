"""Queues with jobs that have been stuck for long, and a stale check that the test runs by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.stores.stores import Store
from tests.support.stuck.stale import Deep, deep_bench


@pytest.fixture
def make(
    valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Deep]]:
    with ExitStack() as stack:
        yield lambda toml="": stack.enter_context(deep_bench(valkey, state_store, tmp_path, monkeypatch, toml))


@pytest.fixture
def deep(make: Callable[..., Deep]) -> Deep:
    return make()
