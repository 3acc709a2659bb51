"""/servers and its part of the API: who is there, how it is, who works on it, and what was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.live import state_cache
from dashboard.live.cached_state import SnapshotHealth
from dashboard.servers import chart_data, gate_presenters
from dashboard.servers import queries as servers_queries
from recovery.domain.identifiers import QueueRef, slug
from recovery.domain.servers.metric_history import FINE, ServerCell
from recovery.domain.servers.samples import LeftoverProcess, Server, ServerProcess
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.domain.stuck.inbox import StuckInbox
from recovery.domain.stuck.types import LossCause, StuckJob, Verdict, VerdictKind
from recovery.models import GateFlip, Incident
from recovery.reads.stuck import inbox_store
from recovery.servers.sample_store import SampleStore
from recovery.stores import registry
from recovery.stores.state import state_keys
from tests.support.machines import Machine, refused, told
from tests.support.people import browser, person
from tests.support.stores.stores import Store
from tests.support.stuck.watching import bullmq, now_ms
from tests.support.waiting import until
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)

MAIL = QueueRef("main", "bull:mail")
SECRET = "hunter2-is-secret"
NASTY = '"><img src=x onerror=alert(1)>'
AWAY = SnapshotHealth(error="The state store does not answer: it hung up.", stale=True)


class Yard:
    """Servers that tell of themselves, and everything that was read of them forgotten."""

    def __init__(self, state_store: Store) -> None:
        self.store = state_store
        self._publisher = SampleStore(state_store.client)

    def publish(self, *servers: Server) -> None:
        for server in servers:
            past = UnsentSamples()
            for back in range(60, -1, -1):
                at = server.sampled_at - back * FINE.unit
                past.add(ServerCell(at, server.cpu_raw, server.cpu_ema, server.cpu_raw, 50.0, server.load1))
            self._publisher.publish(server, past)
        self.forget()
        wanted = {server.id for server in servers}
        until(lambda: wanted <= {one.id for one in state_cache.servers()}, 30, "they are read")

    def forget(self) -> None:
        state_cache.forget_cached()
        for kept in (servers_queries._seconds, chart_data._pasts, gate_presenters._lately):
            kept.forget()


@pytest.fixture
def yard(desk: Desk, state_store: Store) -> Yard:
    made = Yard(state_store)
    made.forget()
    return made


def a_server(id: str = "eu-1", **facts: Any) -> Server:
    told: dict[str, Any] = {"cpu_raw": 61.0, "cpu_ema": 66.0, "cores": 4.0, "load1": 2.5, "load5": 2.0, "load15": 1.0}
    told |= {"mem_used": 710, "mem_total": 1000, "disk_used": 40, "disk_total": 100, "addresses": ("10.0.0.1",)}
    return Server(**{"id": id, "host": f"{id}.example", "sampled_at": now_ms(), "poll": 5_000} | told | facts)


def page(client: Client, path: str = "/servers") -> str:
    answer = client.get(path)
    assert answer.status_code == 200, path
    return answer.content.decode()


@pytest.fixture
def admin() -> Client:
    return browser(person(UserRole.ADMIN))


def test_without_a_server_it_says_how_to_get_one(yard: Yard, admin: Client) -> None:
    text = page(admin)
    assert "No servers reporting." in text
    assert "python -m recovery.monitor" in text
    assert "data-chart" not in text


def test_one_server_has_a_card_a_chart_and_no_selector(yard: Yard, admin: Client) -> None:
    yard.publish(a_server())
    text = page(admin)
    for words in ("61 %", "smoothed 66 %", "memory 71 %", "load 2.5/4", "disk 40 %"):
        assert words in text
    assert 'data-chart="/servers/eu-1/chart?range=15m"' in text
    assert 'id="server-select"' not in text
    assert "removed in" not in text


def test_the_page_opens_on_the_busiest_and_a_form_names_another(yard: Yard, admin: Client) -> None:
    yard.publish(a_server(), a_server("eu-2", cpu_raw=97.0))
    assert "<title>eu-2 · Servers · Unstall</title>" in page(admin)
    moved = admin.get("/servers?server=eu-1&range=6h")
    assert moved.headers["Location"] == "/servers/eu-1?range=6h"
    text = page(admin, "/servers/eu-1?range=6h")
    assert '<option value="eu-1" selected>' in text
    assert 'id="range-6h" href="/servers/eu-1?range=6h" aria-current="true"' in text


def test_a_server_that_nobody_told_of_is_not_found_and_one_that_is_gone_keeps_its_past(
    yard: Yard, admin: Client
) -> None:
    assert admin.get("/servers/eu-9").status_code == 404
    yard.publish(a_server(), a_server("eu-2"))
    yard.store.client.delete(state_keys.server_metrics("eu-2"))
    yard.forget()
    until(lambda: [one.id for one in state_cache.servers()] == ["eu-1"], 30)
    text = page(admin, "/servers/eu-2")
    assert 'data-state="unknown">gone</span>' in text
    assert "data-chart" in text
    assert "No longer reporting:" in page(admin, "/servers/eu-1")
    figure = json.loads(admin.get("/servers/eu-2/chart").content)
    assert 61.0 in next(trace["y"] for trace in figure["data"] if trace["name"] == "raw")


def test_an_old_sample_is_said_to_be_old(yard: Yard, admin: Client) -> None:
    """How old it is, its key tells: it ends ten polls after the last one."""
    yard.publish(a_server())
    yard.store.client.pexpire(state_keys.server_metrics("eu-1"), 30_000)
    yard.forget()
    until(state_cache.servers, 30)
    text = page(admin, "/servers/eu-1/now")
    for words in ("data-old", "last seen", "removed in"):
        assert words in text


def test_a_state_store_that_is_away_is_said_and_nothing_looks_well(
    yard: Yard, desk: Desk, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard.publish(a_server())
    kept = state_cache.servers()
    desk.health = AWAY
    yard.store.stop()
    try:
        monkeypatch.setattr(state_cache, "servers", lambda: kept)
        for forgotten in (servers_queries._seconds, chart_data._pasts, gate_presenters._lately):
            forgotten.forget()
        text = page(admin, "/servers/eu-1")
    finally:
        yard.store.start()
    assert "These numbers are stale." in text
    assert "The history cannot be read." in text
    assert "Callers cannot be read" in text


def test_workers_are_joined_with_their_connections_and_jobs(yard: Yard, desk: Desk, admin: Client) -> None:
    bullmq(desk.client, MAIL.base)
    hand = desk.store.connect(single_connection_client=True)
    hand.client_setname("bull:bWFpbA==:w:mail-1")
    end = "{}:{}".format(*hand.connection._sock.getsockname())
    desk.look(MAIL.base)
    process = ServerProcess(8811, "node", f"node mail.js --token={SECRET}", now_ms() - 60_000, 31.2, 2**20, (end,))
    yard.publish(a_server(processes=(process, ServerProcess(9, "python", "python -m worker", now_ms()))))
    text = page(admin, "/servers/eu-1")
    assert "<b>mail-1</b>" in text
    assert "pid 8811" in text
    assert "<code>bull:mail</code>" in text
    assert "1 worker" in text
    assert "takes no jobs from a known queue" in text
    hand.close()


def test_what_a_process_calls_itself_is_only_text_without_secrets(yard: Yard, admin: Client) -> None:
    stray = LeftoverProcess(
        7, NASTY, f"ffmpeg password={SECRET}", 1, f"node {NASTY}", now_ms(), 94.0, 640, (f"/out/{NASTY}", "/etc/x")
    )
    yard.publish(a_server(NASTY, host=NASTY, strays=(stray,)))
    address = f"/servers/{slug(NASTY)}"
    text, seen = page(admin, address), page(browser(person(UserRole.VIEWER)), address)
    for told_text in (text, seen):
        assert "<img" not in told_text
        assert "1 orphaned process" in told_text
    assert SECRET not in text
    assert SECRET not in seen


def test_the_chart_has_what_was_lost_here_and_what_was_lost_nobody_knows_where(yard: Yard, admin: Client) -> None:
    yard.publish(a_server(), a_server("eu-2"))
    at = now_ms() - 60_000
    for number, server in enumerate(("eu-1", "eu-1", "eu-2", "", "10.0.0.77")):
        Incident.objects.create(
            deployment="main", base=MAIL.slug, job=str(number), kind="orphan", opened_at=at, server=slug(server)
        )
    GateFlip.objects.create(server="eu-1", at=at, state="closed", cpu=91.0, why="The CPU is at 91 %.")
    text = page(admin, "/servers/eu-1")
    assert "job lost on this server" in text
    assert "gate closed" in text
    figure = json.loads(admin.get("/servers/eu-1/chart").content)
    marks = {trace["name"]: trace["text"] for trace in figure["data"] if trace["mode"] == "markers"}
    assert marks == {"lost on this server": ["2 jobs of bull:mail"], "lost, server unknown": ["2 jobs of bull:mail"]}
    shades = [shape for shape in figure["layout"]["shapes"] if shape["type"] == "rect"]
    assert [shape["x0"] for shape in shades] == [at]


def test_stuck_jobs_and_their_server_lead_to_each_other(yard: Yard, desk: Desk, admin: Client) -> None:
    yard.publish(a_server())
    verdict = Verdict(VerdictKind.ORPHAN, ("It has no lock.",), LossCause.STARVED, "server eu-1 was at 97 %.")
    lines = [StuckJob(MAIL.job(server), "mail", verdict, now_ms(), server=server) for server in ("eu-1", "10.0.0.9")]
    inbox_store.publish(registry.registry().state(), StuckInbox(now_ms(), tuple(lines)))
    desk.forget()
    assert '<a href="/stuck?server=eu-1">' in page(admin, "/servers/eu-1")
    text = page(admin, "/stuck?server=eu-1")
    assert "CPU and gate of eu-1" in text
    assert 'on <a href="/servers/eu-1">eu-1</a>' in text
    assert "on 10.0.0.9" in page(admin, "/stuck")


def test_the_api_tells_the_same(yard: Yard, desk: Desk) -> None:
    yard.publish(
        a_server(cpu_host=12.5), a_server("eu 2", processes=(ServerProcess(7, "node", f"x token={SECRET}", 5),))
    )
    yard.store.client.zadd(state_keys.SERVERS, {"gone": 5})
    yard.forget()
    until(lambda: len(state_cache.servers()) == 2, 30)
    machine = Machine(TokenScope.READ)
    found = told(machine.get("servers"))
    servers = {one["id"]: one for one in found["servers"]}
    assert set(servers) == {"eu-1", "eu~202"}
    assert (servers["eu-1"]["cpu_raw"], servers["eu-1"]["cpu_host"]) == (61.0, 12.5)
    assert [one["id"] for one in found["gone"]] == ["gone"]
    one = told(machine.get("servers/eu~202", range="15m"))
    assert SECRET not in json.dumps(one)
    assert [process["pid"] for process in one["processes"]] == [7]
    assert len(one["history"]) == 180
    assert one["gate"]["close_at"] == 80.0
    refused(machine.get("servers/nope"), 404, "server_missing")
    refused(machine.get("servers/gone"), 404, "server_missing")
