"""Servers of a site that measure nothing and stay: with a past, workers, strays, a gate that turned, and lost jobs."""

from __future__ import annotations

from recovery import shared_clock
from recovery.domain.identifiers import slug
from recovery.domain.servers.metric_history import FINE, ServerCell
from recovery.domain.servers.samples import LeftoverProcess, Server, ServerProcess
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.gate.queries import column
from recovery.servers.sample_store import SampleStore
from recovery.stores.state import state_keys
from tests.browser.seeds import NASTY, NASTY_ID, SECRET
from tests.support.processes.site import Site

PLAIN, ODD = "eu-1", NASTY[0] + "w" * 60
_POLL = FINE.unit


def populate(site: Site) -> tuple[str, str]:
    """The addresses of a plain server and of one whose names mean harm."""
    now = shared_clock.now()
    publisher = SampleStore(site.state.client)
    for id in (PLAIN, ODD):
        publisher.publish(_server(id, now), _past(now))
        site.state.client.persist(state_keys.server_metrics(id))
        for at, turned in ((now - 600_000, "closed"), (now - 400_000, "open"), (now - 90_000, "closed")):
            site.web.change(
                "INSERT INTO recovery_gateflip (server, at, state, cpu, why) VALUES (?, ?, ?, 91, 'The CPU is high.')",
                *(column(id), at, turned),
            )
        _asked(site, id, now)
    return f"/servers/{PLAIN}", f"/servers/{slug(ODD)}"


def _server(id: str, now: int) -> Server:
    command = f"node worker.js --token={SECRET} {NASTY_ID}"
    processes = (
        ServerProcess(8811, "node", command, now - 300_000_000, 31.2, 222_000_000, ("10.0.0.1:1",)),
        ServerProcess(9001, NASTY[0], "python -m worker", now - 2_000),
    )
    stray = LeftoverProcess(
        8812, "ffmpeg", command, now, command, now - 60_000, 94.0, 640_000_000, (f"/out/{NASTY_ID}", "/out/2")
    )
    return Server(
        id=id,
        host=id,
        sampled_at=now,
        poll=_POLL,
        cpu_raw=61.0,
        cpu_ema=66.0,
        cpu_host=70.0,
        cores=2.5,
        quota=2.5,
        load1=12.25,
        load5=11.0,
        load15=9.0,
        mem_used=710,
        mem_total=1000,
        disk_used=40,
        disk_total=100,
        addresses=("10.0.0.1", "fd00::1234:5678:9abc:def0"),
        processes=processes,
        strays=(stray,),
        left_out=3,
    )


def _past(now: int) -> UnsentSamples:
    past = UnsentSamples()
    for back in range(700, -1, -1):
        if not 100 < back < 110:  # nobody measured
            past.add(ServerCell(now - back * _POLL, 40.0 + back % 50, 45.0 + back % 40, 90.0, 50.0, 2.5))
    return past


def _asked(site: Site, id: str, now: int) -> None:
    for back, ready in ((300_000, "1"), (200_000, "0"), (80_000, "0")):
        told = {"at": str(now - back), "caller": NASTY_ID, "token": "n8n", "ready": ready, "reason": "settling"}
        site.state.client.xadd(state_keys.gate_decisions(id), {**told, "cpu": "61.0", "times": "3"})
