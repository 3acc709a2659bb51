"""Jobs written by hand in the states that acts are for, and the dialog as a browser without scripts goes through it."""

from __future__ import annotations

import html
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from django.test import Client

from recovery.domain.identifiers import encode_name, slug
from recovery.reads.queues import snapshot_store
from recovery.stores import registry
from tests.support.stuck.watching import add, bullmq, now_ms
from tests.web.conftest import Desk

BASE = "bull:mail"
REASON = "eu-2 starved"


def queue(desk: Desk, base: str = BASE) -> None:
    bullmq(desk.client, base)


def look(desk: Desk, *bases: str) -> None:
    """A snapshot, where the engine finds it too."""
    found = desk.look(*(bases or (BASE,)))
    snapshot_store.publish(registry.registry().state(), found)
    desk.forget()


@contextmanager
def attended(desk: Desk, base: str = BASE) -> Iterator[None]:
    """A connection as a worker's."""
    prefix, _, name = base.partition(":")
    connection = desk.store.connect(client_name=f"{prefix}:{b64encode(encode_name(name)).decode()}")
    try:
        connection.ping()
        yield
    finally:
        connection.close()


def active(desk: Desk, *ids: str, lock: str = "", base: str = BASE, **fields: str | int) -> None:
    """Active jobs, without a lock unless there is a token."""
    for id in ids:
        add(desk.client, base, id, processedOn=now_ms() - 60_000, atm=1, ats=1, **fields)
        desk.client.lrem(f"{base}:wait", 1, encode_name(id))
        desk.client.lpush(f"{base}:active", encode_name(id))
        if lock:
            desk.client.set(f"{base}:{id}:lock", lock, px=20_000)


def failed(desk: Desk, *ids: str, base: str = BASE) -> None:
    _finished(desk, ids, f"{base}:failed", failedReason="it broke")


def completed(desk: Desk, *ids: str, base: str = BASE) -> None:
    _finished(desk, ids, f"{base}:completed", returnvalue="1")


def ask(act: str, *ids: str, base: str = BASE, **more: str) -> str:
    """The dialog's address."""
    jobs = "".join(f"&job=main/{slug(base)}/{slug(id)}" for id in ids)
    rest = "".join(f"&{name}={value}" for name, value in more.items())
    return f"/act?act={act}{jobs}{rest}"


def token(page: bytes) -> str:
    found = re.search(rb'name="token" value="([^"]+)"', page)
    assert found, page.decode()
    return html.unescape(found[1].decode())


def confirm(client: Client, address: str, shown: bytes, **fields: Any) -> Any:
    """Post what was shown."""
    form = {"token": token(shown), "step": "confirm", "reason": REASON} | fields
    headers = form.pop("headers", None)
    return client.post(address, form, headers=headers)


def through(client: Client, address: str, **fields: Any) -> Any:
    """Look and confirm in one go."""
    shown = client.get(address)
    assert shown.status_code == 200, shown.content.decode()
    return confirm(client, address, shown.content, **fields)


def picture(desk: Desk) -> dict[bytes, Any]:
    """Every key of the queues' store, to see that nothing was changed."""
    return {key: desk.client.dump(key) for key in sorted(desk.client.keys("*")) if not key.endswith(b":lock")}


def _finished(desk: Desk, ids: Iterable[str], key: str, **fields: str) -> None:
    base, at = key.rpartition(":")[0], now_ms() - 5000
    for id in ids:
        add(desk.client, base, id, finishedOn=at, atm=1, **fields)
        desk.client.lrem(f"{base}:wait", 1, encode_name(id))
        desk.client.zadd(key, {encode_name(id): at})
