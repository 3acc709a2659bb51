"""A Redis into which somebody has planted what no library writes: bounded in memory and time, and the rest goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import patience
from tests.support.stores.stores import Store
from tests.support.stuck import hostile_sizes
from tests.support.stuck.hostile_sizes import MIB
from tests.support.stuck.watching import add, bullmq, config_of

MEMORY = 100  # MB more than without it
SECONDS = 2.0
_PROGRAM = (
    "import sys, django; django.setup(); from tests.support.stuck import hostile_reader; "
    "hostile_reader.main(*sys.argv[1:])"
)


def _read(directory: Path, *bases: str) -> dict[str, Any]:
    command = [sys.executable, "-c", _PROGRAM, str(directory), *bases]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _check(found: dict[str, Any]) -> None:
    assert found["error"] == "", "the deployment"
    assert found["peak"] <= MEMORY, found
    assert found["kept"] <= MEMORY / 2, found
    assert max(found["seconds"].values()) <= patience(SECONDS), found
    assert (found["errors"].pop("bull:mail"), found["waiting"]["bull:mail"]) == ("", 2)


@pytest.fixture
def directory(tmp_path: Path, valkey: Store, state_store: Store) -> Path:
    config_of(tmp_path, state_store, {"main": valkey}, timeout=5)  # of a server that shares a busy machine
    bullmq(valkey.client, "bull:mail")
    add(valkey.client, "bull:mail", "1", "2")
    return tmp_path


def test_strings_of_some_megabytes_cost_little(directory: Path, valkey: Store) -> None:
    for planting in hostile_sizes.ALL:
        planting(valkey.client, f"bull:{planting.__name__}", 8 * MIB)
    found = _read(directory, "bull:mail", *(f"bull:{planting.__name__}" for planting in hostile_sizes.ALL))
    _check(found)
    assert all(found["errors"][f"bull:{one.__name__}"].startswith("skipped:") for one in hostile_sizes.SNAPSHOT)


@pytest.mark.long
@pytest.mark.parametrize("planting", hostile_sizes.ALL, ids=lambda one: one.__name__)
def test_strings_of_120_megabytes_cost_little(directory: Path, valkey: Store, planting: hostile_sizes.Planting) -> None:
    planting(valkey.client, "bull:evil", 120 * MIB)
    _check(_read(directory, "bull:mail", "bull:evil"))


@pytest.mark.long
def test_the_longest_string_that_redis_keeps_costs_little(directory: Path, valkey: Store) -> None:
    hostile_sizes.id_in_active(valkey.client, "bull:evil", 512 * MIB - 100)
    _check(_read(directory, "bull:mail", "bull:evil"))


@pytest.mark.long
def test_millions_of_entries_cost_little(directory: Path, valkey: Store) -> None:
    hostile_sizes.many_entries(valkey.client, "bull:evil", 2_500_000)  # in each of four lists and sets
    _check(_read(directory, "bull:mail", "bull:evil"))


@pytest.mark.long
def test_deep_json_costs_little(directory: Path, valkey: Store) -> None:
    for number, deep in enumerate(("[" * 30_000 + "]" * 30_000, '{"a":' * 10_000 + "1" + "}" * 10_000)):
        job = {"name": "mail", "timestamp": 1, "data": deep, "opts": deep, "parent": deep, "returnvalue": deep}
        valkey.client.hset(f"bull:evil:{number}", mapping=job)
        valkey.client.lpush("bull:evil:wait", number)
        valkey.client.zadd("bull:evil:failed", {str(number): 1})
    _check(_read(directory, "bull:mail", "bull:evil"))
