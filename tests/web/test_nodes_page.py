"""/servers with servers that others measure: what cannot be read is told in words, on the cards and on the chart."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard import server_known, server_past
from dashboard.access import Role
from dashboard.live import mirror
from recovery.connections import registry
from recovery.connections.publishing import Publisher
from recovery.domain.backlog import Backlog
from recovery.domain.nodes import Trouble
from recovery.domain.servers import Origin, Server
from recovery.scanners.nodes.post import Post, Source
from tests.measuring import patient
from tests.people import browser, person
from tests.waiting import until
from tests.watching import now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_cannot_be_read_is_told(desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)
    with (tmp_path / "unstall.toml").open("a") as toml:
        toml.write("\n[prometheus]\nurl = 'http://127.0.0.1:1'\n")
    registry.reset()
    server = Server("eu-7", "eu-7", now_ms(), 30_000, origin=Origin.PROMETHEUS, cpu_raw=5.0, cpu_ema=5.0)
    Publisher(desk.state.client).publish(server, Backlog())
    post = Post(registry.registry(), Source.EXPORTERS)
    post.tell([Trouble("eu-9", "http://eu-9:9100/metrics", "connection <refused>", "Is it running?", now_ms())])
    mirror.forget()
    server_known.forget()
    server_past._pasts.forget()
    until(lambda: mirror.servers() and mirror.unread(), 30)

    answer = browser(person(Role.VIEWER)).get("/servers/eu-7")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert "eu-9 cannot be read" in text
    assert "connection &lt;refused&gt;" in text
    assert "The Prometheus at http://127.0.0.1:1 could not be queried: connection refused." in text
