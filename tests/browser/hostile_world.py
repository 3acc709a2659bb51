"""A site in which all that others write is markup that runs a script: queues, jobs, workers, servers, claims, reasons.

Each of PAYLOADS calls `hostile()` in a browser that takes it for markup, or alert() where it stands among the seeds.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from urllib.parse import urlencode

import redis

from recovery.domain.identifiers import slug
from tests.browser import scanned, yard
from tests.support.idempotency import Desk
from tests.support.processes.site import Site
from tests.support.stuck.watching import bullmq, now_ms

PAYLOADS = (
    "<script>hostile()</script>",
    '"><img src=x onerror=hostile()>',
    "'><svg onload=hostile()>",
    "</textarea></title></style></script><script>hostile()</script>",
    '" autofocus tabindex=1 onfocus=hostile() x="',
    "<iframe srcdoc='<script>parent.hostile()</script>'></iframe>",
    '<a href="javascript:hostile()">x</a>',
    "javascript:hostile()",
    "<b hx-get=/queues hx-trigger=load hx-on::after-request=hostile()>x</b>",
)
BREAKS_OUT = PAYLOADS[1]  # of an attribute
STATES = ("wait", "active", "failed", "completed", "delayed", "prioritized", "waiting-children")
_TEXTS = ("name", "data", "opts", "returnvalue", "failedReason", "stacktrace", "progress", "parentKey", "deid", "rjk")


def populate(site: Site, stack: ExitStack) -> list[str]:
    """Fills the site; returns the addresses to begin with."""
    client = site.queues.client
    bases = [f"bull:{payload.replace('{', '')}{number}" for number, payload in enumerate(PAYLOADS)]
    for base, payload in zip(bases, PAYLOADS, strict=True):
        _queue(client, base, payload)
        _attend(site, base, payload, stack)
    servers = yard.populate(site)
    run = scanned.story(site, bases[0])
    _claims(site)
    return [*servers, run, *(f"/queues/main/{slug(base)}/" for base in bases)]


def _queue(client: redis.Redis, base: str, payload: str) -> None:
    bullmq(client, base, version=f"5.81.5{payload}")
    client.hset(f"{base}:meta", mapping={"paused": payload, "concurrency": payload, "library": payload})
    for state in STATES:
        for id in (payload, f"{state}{payload}"):
            client.hset(f"{base}:{id}", mapping=_job(payload))
            client.rpush(f"{base}:{id}:logs", payload, json.dumps({payload: payload}))
            if state in ("wait", "active"):
                client.lpush(f"{base}:{state}", id)
            else:
                client.zadd(f"{base}:{state}", {id: now_ms()})
    client.sadd(f"{base}:{payload}:dependencies", f"{base}:{payload}", payload)
    client.hset(f"{base}:{payload}:processed", mapping={f"{base}:{payload}": payload})
    client.zadd(f"{base}:repeat", {payload: now_ms()})
    client.hset(f"{base}:repeat:{payload}", mapping=dict.fromkeys(("name", "pattern", "tz", "every", "data"), payload))


def _job(payload: str) -> dict[str, str | int]:
    data = json.dumps({payload: [payload, {payload: payload}], "url": "javascript:hostile()"})
    fields: dict[str, str | int] = dict.fromkeys(_TEXTS, payload)
    return fields | {"data": data, "opts": data, "stacktrace": json.dumps([payload]), "timestamp": now_ms()}


def _attend(site: Site, base: str, payload: str, stack: ExitStack) -> None:
    """Connects a worker with a name; characters that a name may not hold are left out."""
    worker = redis.Redis.from_url(site.queues.url)
    stack.callback(worker.close)
    name = "".join(sign for sign in f"{base}:w:{payload}" if sign.isprintable() and sign != " ")
    worker.client_setname(name)


def _claims(site: Site) -> None:
    desk = Desk(site.state.client)
    for payload in PAYLOADS:
        desk.claim(f"claimed {payload}", owner=payload, by=payload)
        desk.done(f"done {payload}", json.dumps({payload: payload}).encode())


def searches() -> list[str]:
    """Lists addresses whose own parameters are markup, as a link from outside brings them."""
    found = []
    for number, (path, key) in enumerate(_PARAMETERS):
        payloads = (BREAKS_OUT, PAYLOADS[number % len(PAYLOADS)])
        found += [f"{path}?{urlencode({key: payload})}" for payload in payloads]
    for payload in PAYLOADS:
        found += [f"/nowhere/{slug(payload)}", f"/queues/main/{slug(payload)}/", f"/servers/{slug(payload)}"]
        found.append(f"/login?{urlencode({'next': payload})}")
    return found


_PARAMETERS = (
    *(("/queues", "q"), ("/queues", "sort"), ("/search", "q"), ("/stuck", "verdict"), ("/stuck", "cause")),
    *(("/audit", "q"), ("/audit", "actor"), ("/idempotency", "q"), ("/logs", "include"), ("/logs", "source")),
    *(("/scanners/policies", "q"), ("/palette", "q"), ("/act", "act"), ("/act", "job"), ("/act", "back")),
)
