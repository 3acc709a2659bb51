"""Queues whose failed jobs are relaunched, by a scanner that the test runs by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.stores.stores import Store
from tests.support.stuck.relaunching import ARMED, Relaunching, relaunching


@pytest.fixture
def make(
    valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Relaunching]]:
    with ExitStack() as stack:
        yield lambda toml=ARMED: stack.enter_context(relaunching(valkey, state_store, tmp_path, monkeypatch, toml))


@pytest.fixture
def jobs(make: Callable[..., Relaunching]) -> Relaunching:
    return make()
