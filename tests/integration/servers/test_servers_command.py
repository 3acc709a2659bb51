"""`manage.py servers`: every server that tells of itself, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from recovery import shared_clock
from recovery.domain.servers.samples import Server, ServerProcess
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.servers.sample_store import SampleStore
from tests.support.processes.processes import free_port
from tests.support.stores.stores import Store

NODE = ServerProcess(7, "node", "node worker.js", 900, 12.5, 1 << 20, ("10.0.0.7:4000",))


def _run(*arguments: str) -> str:
    out = StringIO()
    call_command("servers", *arguments, stdout=out)
    return out.getvalue()


def _tell(store: Store, id: str, **known: object) -> None:
    now = shared_clock.now()
    publisher = SampleStore(store.connect())
    publisher.publish(Server(id, "host", now, 60_000, **known), UnsentSamples())
    publisher.close()


def test_people_get_a_table_and_scripts_get_json(watch: Callable[..., None], state_store: Store) -> None:
    _tell(state_store, "eu-2", cpu_raw=97.4, cpu_ema=91.0, cores=2.0, mem_used=1, mem_total=4, processes=(NODE,))
    _tell(state_store, "eu-1\x1b[31m")
    watch(UNSTALL_STATE_URL=state_store.url)
    head, bare, full = _run().splitlines()
    assert head.split()[:2] == ["server", "source"]
    assert "\x1b" not in bare
    assert bare.split()[2:5] == ["?", "?", "?"]
    assert full.split()[:9] == ["eu-2", "worker-monitor", "97", "%", "91", "%", "2", "25", "%"]
    rows = json.loads(_run("--json"))["servers"]
    assert [row["id"] for row in rows] == ["eu-1\x1b[31m", "eu-2"]
    assert (rows[0]["cpu_raw"], rows[1]["processes"][0]["sockets"]) == (None, ["10.0.0.7:4000"])


def test_nobody_there_says_what_to_do(watch: Callable[..., None], state_store: Store) -> None:
    watch(UNSTALL_STATE_URL=state_store.url)
    assert "Start a monitor" in _run()


def test_without_a_store_the_status_says_why(watch: Callable[..., None]) -> None:
    watch(UNSTALL_STATE_URL=f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(CommandError, match="connection refused") as silent:
        _run()
    assert silent.value.returncode == 4
    watch()
    with pytest.raises(CommandError, match="UNSTALL_STATE_URL") as unknown:
        _run()
    assert unknown.value.returncode == 2
