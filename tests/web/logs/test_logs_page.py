"""/logs without scripts: the newest lines stand in the page, as text, chosen by what its address says."""

from __future__ import annotations

import asyncio
import html
import json
import re

import pytest
from django.test import Client
from django.utils.http import urlencode

from recovery import config
from recovery.domain.logs.types import LogLine, LogQuery
from recovery.logs import registry as logs_registry
from recovery.models import AuditEntry
from recovery.stores.state import async_client
from tests.support.logs.log_writer import LogWriter
from tests.support.people import text
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db

NASTY = '"><img src=x onerror=alert(1)>'
SECRET = "hunter2-is-secret"


@pytest.fixture
def writer(desk: Desk) -> LogWriter:
    return LogWriter(desk.state, "eu-1")


def said(page: str) -> list[str]:
    return [html.unescape(line) for line in re.findall(r'<span class="said">(.*?)</span>', page, re.DOTALL)]


def test_whoever_may_look_sees_the_page_and_no_line_of_it_is_read_before_scripts_ask(
    viewer: Client, writer: LogWriter
) -> None:
    writer.write("INFO a line")
    page = text(viewer, "/logs")
    assert "data-logs" in page
    assert "a line" not in page
    assert '<noscript><meta http-equiv="refresh" content="0; url=/logs?plain=1"></noscript>' in page


def test_a_line_of_odd_bytes_is_text(viewer: Client, writer: LogWriter) -> None:
    writer.write(NASTY, b"\xff\xfe broken \x00 \x1b[31mred\x1b[0m", f"password={SECRET}", "x" * 20_000)
    page = text(viewer, "/logs?plain=1")
    assert NASTY not in page
    assert SECRET not in page
    found = said(page)
    assert found[0] == NASTY
    assert found[1] == "\ufffd\ufffd broken \u2400 red"
    assert len(found) == 4
    assert "3,616 more bytes omitted" in page


def lines() -> list[LogLine]:
    """All that there are, with their places."""

    async def found() -> list[LogLine]:
        client = async_client.state_client(config.current())
        opened = logs_registry.make_sources(config.current(), client)
        try:
            return list((await opened["servers"].search(LogQuery())).lines)
        finally:
            for source in opened.values():
                await source.close()
            await client.aclose()

    return asyncio.run(found())


def test_a_line_is_revealed_to_operators_and_the_audit_has_it(
    viewer: Client, operator: Client, writer: LogWriter
) -> None:
    writer.write("INFO before", f"login with password={SECRET}", "INFO after")
    (line,) = [line for line in lines() if "password" in line.text]
    assert SECRET not in line.text
    address = f"/logs/reveal?{urlencode({'source': 'servers', 'id': line.id})}"
    assert viewer.post(address).status_code == 403
    assert operator.get(address).status_code == 405
    assert operator.post("/logs/reveal?source=servers&id=1-1.1.1").status_code in (400, 404)
    assert operator.post("/logs/reveal?source=nowhere&id=1").status_code == 404
    assert AuditEntry.objects.count() == 0
    answer = operator.post(address)
    assert answer.status_code == 200, answer.content
    assert json.loads(answer.content)["text"] == f"login with password={SECRET}"
    (entry,) = AuditEntry.objects.all()
    assert (entry.act, entry.actor) == ("reveal", "some-operator")
    assert json.loads(entry.body) == {"options": {"line": line.id, "parts": "log line", "source": "servers"}}
    assert "data-reveals" in text(operator, "/logs")
    assert "data-reveals" not in text(viewer, "/logs")


def test_the_address_says_which_lines_and_the_form_says_it_again(viewer: Client, writer: LogWriter) -> None:
    writer.write("ERROR one", "INFO two", "ERROR three, retried", container="mail")
    writer.write("ERROR four", container="web")
    asked = "plain=1&label=container%3Dmail&level=error&exclude=RETRIED&range=1h"
    page = text(viewer, f"/logs?{asked}")
    assert said(page) == ["ERROR one"]
    for value in ("container=mail", "error", "1h"):
        assert re.search(rf'value="{value}" checked', page)
    assert 'name="exclude" value="RETRIED"' in page
    assert "container=web" in page, "what else there is to choose from"


def test_lines_say_of_themselves_what_tells_them_apart(viewer: Client, writer: LogWriter) -> None:
    writer.write("one", container="mail", stream="stdout")
    writer.write("two", container="web", stream="stdout")
    origins = re.findall(r'<span class="from">(.*?)</span>', text(viewer, "/logs?plain=1"))
    assert origins == ["mail", "web"]


def test_a_label_of_markup_is_text_too(viewer: Client, writer: LogWriter) -> None:
    writer.write("a line", container=NASTY)
    page = text(viewer, f"/logs?plain=1&label=x%3D{NASTY}&include={NASTY}&line=1.2")
    assert NASTY not in page


def test_where_no_server_ships_the_page_says_how_to_begin(viewer: Client, desk: Desk) -> None:
    page = text(viewer, "/logs?plain=1")
    assert "No server is sending logs." in page
    assert "UNSTALL_LOG_FILES" in page


def test_a_source_in_trouble_is_said_with_what_to_do(viewer: Client, desk: Desk, writer: LogWriter) -> None:
    writer.write("a line")
    desk.state.stop()
    try:
        page = text(viewer, "/logs?plain=1")
    finally:
        desk.state.start()
    trouble = re.search(r'role="alert"><span><b>Servers:</b> (.*?)</span>', page)
    assert trouble
    assert len(trouble[1]) > 40
