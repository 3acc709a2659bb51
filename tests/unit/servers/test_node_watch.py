"""One node looked at again and again: when a number is known, what is remembered, and when it is left in peace."""

from __future__ import annotations

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.domain.servers.node_exporter import DISK_FREE, DISK_SIZE
from recovery.domain.servers.samples import SampleOrigin, Server
from recovery.errors import Unreachable
from recovery.servers.nodes import exposition_parser
from recovery.servers.nodes.exporter_scraper import APART, EVERY, LONGEST_PAUSE, ExporterTarget
from recovery.servers.nodes.sample_writer import StoredSample
from recovery.stores.http.http_client import HttpGetResponse

NOW = 1_760_000_000_000
GONE = Unreachable("http://eu-1:9100/metrics", "connection refused")


def told(user: float, idle: float = 0.0, cores: int = 2) -> HttpGetResponse:
    """A page of so many cores, each of which did so much."""
    lines = [
        f'node_cpu_seconds_total{{cpu="{core}",mode="{mode}"}} {value}'
        for core in range(cores)
        for mode, value in (("user", user), ("idle", idle))
    ]
    return HttpGetResponse(("# HELP node_load1 x\nnode_load1 0.5\n" + "\n".join(lines) + "\n").encode(), "10.0.0.1")


class Times:
    """Looks at one node, so many seconds apart."""

    def __init__(self) -> None:
        self.watch = ExporterTarget("eu-1", HttpEndpoint("http://eu-1:9100/metrics"), "/")
        self.at = 1000.0

    def look(
        self, answer: HttpGetResponse | Unreachable, after: float = EVERY, kept: StoredSample | None = None
    ) -> Server | None:
        self.at += after
        assert self.watch.is_due(self.at, kept)
        return self.watch.take(answer, NOW + round(self.at * 1000), self.at, kept)


@pytest.fixture
def node() -> Times:
    return Times()


def test_the_second_look_knows_the_cpu(node: Times) -> None:
    assert node.look(told(0, 0)) is None
    server = node.look(told(1, 4))
    assert server is not None
    assert (server.cpu_raw, server.cpu_ema, server.cores, server.load1) == (20, 20, 2, 0.5)
    assert (server.origin, server.poll, server.addresses) == (SampleOrigin.EXPORTER, 5000, ("10.0.0.1",))
    assert server.mem_used is None
    later = node.look(told(6, 4))
    assert later is not None
    assert later.cpu_raw == 100
    assert 20 < (later.cpu_ema or 0) < 100


def test_looks_that_are_far_apart_say_nothing_of_now(node: Times) -> None:
    node.look(told(0, 0))
    assert node.look(told(10, 6), after=APART + 1) is None
    assert node.look(told(10, 11)) is not None


def test_the_average_goes_on_where_another_left_it(node: Times) -> None:
    before = StoredSample(SampleOrigin.EXPORTER, 90.0)
    node.look(told(0, 0), kept=before)
    server = node.look(told(0, 5), kept=before)
    assert server is not None
    assert server.cpu_raw == 0
    assert 75 < (server.cpu_ema or 0) < 90


def test_a_trouble_is_told_until_a_number_is_known_again(node: Times) -> None:
    node.look(told(0, 0))
    node.look(GONE)
    first = node.watch.trouble
    assert first is not None
    assert (first.id, first.says, first.target) == ("eu-1", "connection refused", "http://eu-1:9100/metrics")
    node.look(GONE, after=LONGEST_PAUSE)
    assert node.watch.trouble == first
    node.look(told(0, 0), after=LONGEST_PAUSE)
    assert node.watch.trouble == first
    assert node.look(told(0, 5)) is not None
    assert node.watch.trouble is None


def test_a_dead_node_is_asked_less_and_less(node: Times) -> None:
    pauses = []
    for _ in range(6):
        node.look(GONE)
        start = node.at
        while not node.watch.is_due(node.at, None):
            node.at += 1
        pauses.append(node.at - start)
        node.at -= EVERY
    assert pauses[0] <= EVERY
    assert pauses[1] <= 2 * EVERY
    assert LONGEST_PAUSE / 2 <= pauses[-1] <= LONGEST_PAUSE
    node.look(told(0, 0), after=LONGEST_PAUSE)
    assert node.watch.is_due(node.at + EVERY, None)


def test_a_monitor_wins(node: Times) -> None:
    node.look(GONE)
    assert not node.watch.is_due(node.at + LONGEST_PAUSE, StoredSample(SampleOrigin.MONITOR, 5.0))
    assert node.watch.trouble is None
    assert node.watch.is_due(node.at, StoredSample(SampleOrigin.PROMETHEUS, 5.0))


def test_a_page_that_somebody_keeps_is_no_news(node: Times) -> None:
    for _ in range(4):
        assert node.look(told(1, 1)) is None
    assert node.watch.trouble is not None
    assert "do not change" in node.watch.trouble.says


def test_a_minute_is_written_without_holes(node: Times) -> None:
    node.look(told(0, 0))
    node.look(told(1, 4), after=2 * EVERY)
    written = sum(len(piece) for ring, _, piece in node.watch.backlog.pieces() if ring.name == "5s")
    assert written == 2 * 16


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (b"", "does not report"),
        (b"<html>hello", "does not report"),
        (b"go_goroutines 5\nnode_load1 1\n", "does not report"),
        (b"node_cpu_seconds_total{cpu=0} 1\n", "cannot be read"),
        (b'node_cpu_seconds_total{cpu="0",mode="idle"} one\n', "cannot be read"),
        (b"node_load1 1\n" * 30_000, "more than 20,000"),
    ],
)
def test_what_is_no_page_of_a_node_is_told(written: bytes, says: str) -> None:
    with pytest.raises(exposition_parser.NotNodeExporter, match=says):
        exposition_parser.parse_exposition(written, "/")


def test_a_page_is_read_as_it_is_meant() -> None:
    written = f"""
# TYPE node_cpu_seconds_total counter
node_cpu_seconds_total{{cpu="0",mode="idle"}} 1.5e+03
node_cpu_seconds_total{{cpu="0",mode="user"}} NaN
node_cpu_seconds_total{{cpu="1",mode="idle"}} -4
node_cpu_guest_seconds_total{{cpu="0",mode="user"}} 7
node_memory_MemTotal_bytes 1000
node_memory_MemAvailable_bytes 250
node_load5 +Inf
node_uname_info{{nodename="a \\"b\\"",release="6"}} 1
{DISK_SIZE}{{device="/dev/vda",mountpoint="/"}} 100
{DISK_FREE}{{device="/dev/vda",mountpoint="/"}} 30
{DISK_SIZE}{{device="/dev/vdb",mountpoint="/data"}} 500
{"x" * 3000} 1
node_load1 2
"""
    found = exposition_parser.parse_exposition(written.encode(), "/")
    assert found.cores == {"0": {"idle": 1500}}
    gauges = found.gauges
    assert (gauges.host, gauges.load1, gauges.load5) == ('a "b"', 2, None)
    assert (gauges.mem_used, gauges.mem_total, gauges.disk_used, gauges.disk_total) == (750, 1000, 70, 100)
    assert exposition_parser.parse_exposition(written.encode(), "/data").gauges.disk_used is None
