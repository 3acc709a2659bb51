"""Which server a connection comes from: a socket is proof, an address only where one server alone has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.servers.addresses import POLLS_FRESH, AddressMap, host_of
from recovery.domain.servers.samples import Server, ServerProcess

NOW = 1_795_000_000_000
POLL = 5_000
WORKER = ServerProcess(7, "node", "node worker.js", NOW - 60_000, sockets=("10.0.0.1:40001", "127.0.0.1:40002"))
EU_1 = Server("eu-1", "a", NOW, POLL, cpu_raw=40.0, cpu_ema=97.0, addresses=("10.0.0.1", "127.0.0.1", "172.17.0.1"))
EU_2 = Server("eu-2", "b", NOW, POLL, cpu_raw=12.0, addresses=("10.0.0.2", "172.17.0.1"))
WORKING = replace(EU_1, processes=(WORKER,))


def test_a_socket_is_proof_also_on_loopback() -> None:
    where = AddressMap.of((WORKING, EU_2), NOW)
    assert where.server("10.0.0.1:40001") == "eu-1"
    assert where.server("127.0.0.1:40002") == "eu-1"
    assert where.server("127.0.0.1:40003") == "", "every machine calls itself so"


def test_an_address_counts_where_one_server_alone_has_it() -> None:
    where = AddressMap.of((WORKING, EU_2), NOW)
    assert where.server("10.0.0.2:555") == "eu-2"
    assert where.server("172.17.0.1:555") == "", "a bridge of containers has the same address everywhere"
    assert where.host("172.17.0.1:555") == "172.17.0.1"
    assert where.host("10.0.0.9:555") == "10.0.0.9"


def test_a_socket_that_two_servers_claim_is_nobodys() -> None:
    where = AddressMap.of((WORKING, replace(EU_2, processes=(WORKER,))), NOW)
    assert where.server("127.0.0.1:40002") == ""
    assert where.server("10.0.0.1:40001") == "eu-1", "its address still tells"


@pytest.mark.parametrize(
    ("told", "asked"), [("[::ffff:10.0.0.7]:5", "10.0.0.7:5"), ("10.0.0.7:5", "[::ffff:10.0.0.7]:5")]
)
def test_ipv4_written_as_ipv6_is_the_same(told: str, asked: str) -> None:
    where = AddressMap.of((replace(EU_1, processes=(replace(WORKER, sockets=(told,)),)),), NOW)
    assert where.server(asked) == "eu-1"


def test_only_a_fresh_sample_tells_how_busy_a_server_is() -> None:
    old = replace(EU_2, sampled_at=NOW - POLLS_FRESH * POLL - 1)
    unknown = Server("eu-3", "c", NOW, POLL)
    assert AddressMap.of((EU_1, old, unknown), NOW).loads == {"eu-1": 97.0}


@pytest.mark.parametrize(
    ("address", "host"),
    [("10.0.0.1:6379", "10.0.0.1"), ("[fd00::1]:40112", "fd00::1"), ("/run/valkey.sock:0", ""), ("", "")],
)
def test_the_host_of_a_connection(address: str, host: str) -> None:
    assert host_of(address) == host
