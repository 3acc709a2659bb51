"""A server's sample on its way through a hash: all of it comes back, and nothing of what is not ours."""

from __future__ import annotations

from recovery.domain.servers import Origin, Process, Server, Stray, decode

FULL = Server(
    id="eu-1",
    host="eu-1.internal",
    sampled_at=1_000,
    poll=5_000,
    origin=Origin.EXPORTER,
    cpu_raw=81.5,
    cpu_ema=70.25,
    cores=1.5,
    quota=1.5,
    mem_used=0,
    addresses=("10.0.0.7",),
    processes=(Process(7, "node", "node worker.js", 900, 12.5, 1 << 20, ("10.0.0.7:4000",)),),
    strays=(Stray(8, "ffmpeg", "ffmpeg -i a", 950, "node worker.js", 990, None, 5, ("/tmp/a.mp4",)),),
    left_out=3,
)


def hashed(server: Server) -> dict[bytes, bytes]:
    return {name.encode(): value.encode() for name, value in server.encode().items()}


def test_all_of_it_comes_back() -> None:
    for server in (FULL, Server("bare", "h", 1, 5_000)):
        assert decode(server.id, hashed(server)) == server


def test_what_is_not_known_stays_unknown_and_zero_stays_zero() -> None:
    found = decode("eu-1", hashed(FULL))
    assert found is not None
    assert (found.mem_used, found.mem_total, found.load1) == (0, None, None)
    assert found.cpu == 81.5
    assert Server("bare", "h", 1, 5_000).cpu is None


def test_what_another_version_wrote_is_no_server() -> None:
    fields = hashed(FULL)
    assert decode("eu-1", {}) is None
    assert decode("eu-1", fields | {b"format": b"0"}) is None
    assert decode("eu-1", fields | {b"cpu_raw": b"many"}) is None
    assert decode("eu-1", fields | {b"processes": b"[[1]]"}) is None
