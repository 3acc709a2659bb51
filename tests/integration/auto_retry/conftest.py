"""Queues whose failed jobs are auto-retried, by a scanner that the test runs by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.stores.stores import Store
from tests.support.stuck.auto_retrying import ARMED, AutoRetrying, auto_retrying


@pytest.fixture
def make(
    valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., AutoRetrying]]:
    with ExitStack() as stack:
        yield lambda toml=ARMED: stack.enter_context(auto_retrying(valkey, state_store, tmp_path, monkeypatch, toml))


@pytest.fixture
def jobs(make: Callable[..., AutoRetrying]) -> AutoRetrying:
    return make()
