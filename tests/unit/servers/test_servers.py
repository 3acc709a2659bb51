"""A server's sample on its way through a hash: all of it comes back, and nothing of what is not ours."""

from __future__ import annotations

import json
from dataclasses import astuple
from typing import Any

import pytest

from recovery.domain.servers.samples import (
    ROWS_LIMIT,
    TEXTS_LIMIT,
    LeftoverProcess,
    SampleOrigin,
    Server,
    ServerProcess,
    decode_server,
)

FULL = Server(
    id="eu-1",
    host="eu-1.internal",
    sampled_at=1_000,
    poll=5_000,
    origin=SampleOrigin.EXPORTER,
    cpu_raw=81.5,
    cpu_ema=70.25,
    cores=1.5,
    quota=1.5,
    mem_used=0,
    addresses=("10.0.0.7",),
    processes=(ServerProcess(7, "node", "node worker.js", 900, 12.5, 1 << 20, ("10.0.0.7:4000",)),),
    strays=(LeftoverProcess(8, "ffmpeg", "ffmpeg -i a", 950, "node worker.js", 990, None, 5, ("/tmp/a.mp4",)),),
    left_out=3,
)


def hashed(server: Server) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in server.encode().items()}


def test_all_of_it_comes_back() -> None:
    for server in (FULL, Server("bare", "h", 1, 5_000)):
        assert decode_server(server.id, hashed(server)) == server


def test_what_is_not_known_stays_unknown_and_zero_stays_zero() -> None:
    found = decode_server("eu-1", hashed(FULL))
    assert found is not None
    assert (found.mem_used, found.mem_total, found.load1) == (0, None, None)
    assert found.cpu == 81.5
    assert Server("bare", "h", 1, 5_000).cpu is None


def test_what_another_version_wrote_is_no_server() -> None:
    fields = hashed(FULL)
    assert decode_server("eu-1", {}) is None
    assert decode_server("eu-1", fields | {b"format": b"0"}) is None
    assert decode_server("eu-1", fields | {b"cpu_raw": b"many"}) is None
    assert decode_server("eu-1", fields | {b"processes": b"[[1]]"}) is None


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e308", "9" * 400, "", "x", "[]"])
@pytest.mark.parametrize("name", ["cpu_raw", "cpu_host", "load1", "cores"])
def test_a_share_that_cannot_be_drawn_makes_no_server(name: str, value: str) -> None:
    assert decode_server("eu-1", hashed(FULL) | {name.encode(): value.encode()}) is None


@pytest.mark.parametrize("value", ["-1", "9" * 30, "9" * 400, "1.5", "nan", "", "{}"])
@pytest.mark.parametrize("name", ["sampled_at", "poll", "mem_used", "disk_total", "started_at", "left_out"])
def test_a_count_beyond_all_measure_makes_no_server(name: str, value: str) -> None:
    assert decode_server("eu-1", hashed(FULL) | {name.encode(): value.encode()}) is None


@pytest.mark.parametrize("value", ["x", 1.5, [], {}, True, -1, 10**30, "\ud800"])
@pytest.mark.parametrize("name", ["processes", "strays"])
def test_a_process_of_other_types_makes_no_server(name: str, value: Any) -> None:
    """Each of its values in turn; a text is one for a text, and a number for a number."""
    good = list(astuple(FULL.processes[0] if name == "processes" else FULL.strays[0]))
    for place, own in enumerate(good):
        is_alike = (
            isinstance(value, str) and value != "\ud800"
            if isinstance(own, str)
            else isinstance(value, list)
            if isinstance(own, tuple)
            else place == (4 if name == "processes" else 6) and type(value) in (int, float) and abs(value) < 10**9
        )
        row = [*good[:place], value, *good[place + 1 :]]
        found = decode_server("eu-1", hashed(FULL) | {name.encode(): json.dumps([row]).encode()})
        assert (found is not None) == is_alike, (place, value)


@pytest.mark.parametrize("value", ["[1]", "[null]", '"abc"', '{"a": 1}', "[[]]", "5", "null", '["\\ud800"]'])
def test_addresses_of_other_types_make_no_server(value: str) -> None:
    assert decode_server("eu-1", hashed(FULL) | {b"addresses": value.encode()}) is None


def test_more_than_a_monitor_tells_of_is_left_out() -> None:
    row = astuple(FULL.processes[0])
    many = {b"processes": json.dumps([row] * 2_000).encode(), b"addresses": json.dumps(["a"] * 9_000).encode()}
    found = decode_server("eu-1", hashed(FULL) | many)
    assert found is not None
    assert (len(found.processes), len(found.addresses)) == (ROWS_LIMIT, TEXTS_LIMIT)
