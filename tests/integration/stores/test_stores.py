"""The tests' own servers keep what the other tests rely on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.support.stores.cluster import Cluster
from tests.support.stores.sentinel import Sentinel
from tests.support.stores.stores import Store
from tests.support.waiting import until


def test_a_store_is_empty_and_its_server_is_what_it_says(store: Store) -> None:
    assert store.client.dbsize() == 0
    assert ("valkey_version" in store.client.info("server")) == (store.kind == "valkey")
    store.client.set("left", "behind")


def test_the_state_store_is_another_server(valkey: Store, state_store: Store) -> None:
    assert valkey.pid != state_store.pid


def test_a_restart_keeps_the_port_and_loses_the_keys(store: Store) -> None:
    port, pid = store.port, store.pid
    store.client.set("key", "value")
    store.stop()
    store.start()
    assert (store.port, store.client.dbsize()) == (port, 0)
    assert store.pid != pid


def test_a_paused_store_is_silent_and_a_resumed_one_answers(valkey: Store) -> None:
    with valkey.connect(socket_timeout=0.2) as impatient:
        valkey.pause()
        with pytest.raises(redis.TimeoutError):
            impatient.ping()
        valkey.resume()
        assert valkey.client.ping()


def test_a_store_left_stopped_is_up_again_for_the_next_test(valkey: Store) -> None:
    valkey.stop()
    valkey.renew()
    assert valkey.client.ping()


def test_a_closed_store_leaves_no_process_and_no_files(serve: Callable[..., Store]) -> None:
    store = serve()
    pid, directory = store.pid, store.directory
    store.close()
    assert not directory.exists()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_server_dies_with_the_test_run_that_started_it(tmp_path: Path) -> None:
    program = (
        "import os; from tests.support.stores.stores import Store; "
        "print(Store().start().pid, flush=True); os.kill(os.getpid(), 9)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        check=False,
        text=True,
    )
    server = int(run.stdout)
    until(lambda: not Path(f"/proc/{server}").exists(), what="the orphaned server is gone")


def test_a_store_can_live_on_a_unix_socket(serve: Callable[..., Store]) -> None:
    store = serve(by_socket=True)
    assert store.url.startswith("unix:///")
    assert store.client.ping()


def test_a_store_can_ask_for_a_password(serve: Callable[..., Store]) -> None:
    store = serve(options={"requirepass": "open sesame".replace(" ", "-")})
    assert store.client.ping()
    with store.connect(password=None) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_a_redis_can_speak_tls(serve: Callable[..., Store], certificates: Path) -> None:
    store = serve("redis", tls=certificates)
    assert store.url.startswith("rediss://")
    assert store.client.ping()


def test_sentinel_names_the_master_and_fails_over(sentinel: Sentinel) -> None:
    before = sentinel.master
    sentinel.client.set("kept", "yes")
    sentinel.fail_over()
    assert sentinel.master is not before
    assert sentinel.client.get("kept") == b"yes"


def test_the_cluster_holds_every_slot_on_three_nodes(cluster: Cluster) -> None:
    for number in range(30):
        cluster.client.set(f"key-{number}", number)
    sizes = [node.client.dbsize() for node in cluster.nodes]
    assert sum(sizes) == 30
    assert all(sizes)


def test_a_cluster_left_with_a_dead_node_is_whole_for_the_next_test(cluster: Cluster) -> None:
    cluster.nodes[1].kill()
    cluster.renew()
    for number in range(30):
        cluster.client.set(f"key-{number}", number)
    assert cluster.nodes[1].client.dbsize()


def test_a_sentinel_left_with_a_dead_master_has_one_for_the_next_test(sentinel: Sentinel) -> None:
    sentinel.master.kill()
    sentinel.renew()
    assert sentinel.client.set("key", "value")
    until(lambda: sentinel.replica.client.get("key") == b"value")
