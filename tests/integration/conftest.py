"""What tests of acts have in front of them: a queue, and a process that may change it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery.actions.bulk.bulk_runs import BulkRunner
from recovery.stores.registry import registry, reset
from tests.support.acting import Bench, set_up
from tests.support.stores.stores import Store


@pytest.fixture
def bench(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with set_up(valkey, state_store, tmp_path, monkeypatch) as bench:
        yield bench


@pytest.fixture
def hands(bench: Bench) -> Iterator[BulkRunner]:
    """What does the bulk runs within the scheduler."""
    hands = BulkRunner(registry())
    yield hands
    hands.close()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Configures the process by its environment, as the commands of the shell find it."""

    def configure(**environ: str) -> None:
        reset()
        for name, value in {"UNSTALL_CONFIG": "", "UNSTALL_STATE_URL": "", **environ}.items():
            if value:
                monkeypatch.setenv(name, value)
            else:
                monkeypatch.delenv(name, raising=False)

    (tmp_path / "apart").mkdir()
    monkeypatch.chdir(tmp_path / "apart")
    yield configure
    reset()
