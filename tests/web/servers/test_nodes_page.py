"""/servers with servers that others measure: what cannot be read is told in words, on the cards and on the chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.accounts.roles import UserRole
from dashboard.live import state_cache
from dashboard.servers import chart_data
from dashboard.servers import queries as servers_queries
from recovery.domain.servers.node_exporter import NodeProblem
from recovery.domain.servers.samples import SampleOrigin, Server
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.servers.nodes.sample_writer import NodeSampleWriter, SampleSource
from recovery.servers.sample_store import SampleStore
from recovery.stores import registry
from tests.support.people import browser, person
from tests.support.processes.measuring import patient
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_cannot_be_read_is_told(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    with (tmp_path / "unstall.toml").open("a") as toml:
        toml.write("\n[prometheus]\nurl = 'http://127.0.0.1:1'\n")
    registry.reset()
    server = Server("eu-7", "eu-7", now_ms(), 30_000, origin=SampleOrigin.PROMETHEUS, cpu_raw=5.0, cpu_ema=5.0)
    SampleStore(desk.state.client).publish(server, UnsentSamples())
    post = NodeSampleWriter(registry.registry(), SampleSource.EXPORTERS)
    post.tell([NodeProblem("eu-9", "http://eu-9:9100/metrics", "connection <refused>", "Is it running?", now_ms())])
    state_cache.forget_cached()
    servers_queries.forget()
    chart_data._pasts.forget()
    until(lambda: state_cache.servers() and state_cache.unreadable_servers(), 30)

    answer = browser(person(UserRole.VIEWER)).get("/servers/eu-7")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "eu-9 cannot be read" in text
    assert "connection &lt;refused&gt;" in text
    assert "The Prometheus at http://127.0.0.1:1 could not be queried: connection refused." in text
