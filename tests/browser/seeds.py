"""A house full of queues to look at: what the real libraries leave behind, at its plainest and at its nastiest."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import redis

from recovery import shared_clock
from recovery.domain.identifiers import encode_name, slug
from tests.support.processes.fleet import Fleet, Library, Queue
from tests.support.stores.stores import Store
from tests.support.waiting import until

NASTY = (
    "<script>alert(1)</script>",
    "a b/c?d#e%2F&f=~",
    "line\r\nbreak",
    "safe\u202egpj.exe",
    "x" * 300,
)
NASTY_ID = '"><img src=x onerror=alert(1)>/\u202eüber 💥 ' + "w" * 120
SECRET = "hunter2-is-not-a-password"
CROWD = 3000
NEEDLE = "needle-7f3a"
LOG_LINES = 620  # more than one window of the page
_HELD_MS = 3_600_000  # a lock outlives the tests, although its worker is gone
_METRIC_MINUTES = 600


@dataclass(frozen=True, slots=True)
class Seeds:
    """Where things are: addresses of pages."""

    mail: str  # everyday: failed with stacks, completed, waiting, prioritized, delayed; metrics; two named workers
    video: str  # active: held, and without a lock
    orders: str  # flows
    reports: str  # schedulers
    legacy: str  # Bull 4
    paused: str
    empty: str
    crowd: str  # CROWD waiting jobs, the last one with NEEDLE in its data
    nasty: tuple[str, ...]  # one for each of NASTY
    failed: str  # jobs
    logged: str
    parent: str
    secret: str
    large: str
    held: str
    nasty_job: str

    @property
    def queues(self) -> tuple[str, ...]:
        plain = (self.mail, self.video, self.orders, self.reports, self.legacy, self.paused, self.empty, self.crowd)
        return (*plain, *self.nasty)


def seed(store: Store, fleet: Fleet, stack: ExitStack) -> Seeds:
    """Fills the store. No worker of a library is left running: those that are seen are connections of ours."""
    bullmq, bull = fleet["bullmq5"], fleet["bull4"]
    mail, failed, secret = _mail(bullmq.queue(store, "mail"))
    video, held = _video(bullmq.queue(store, "video.encode"))
    orders, parent = _orders(bullmq.queue(store, "orders"))
    legacy, logged = _legacy(bull.queue(store, "legacy"))
    nasty, nasty_job, large = _nasty(bullmq, store)
    seeds = Seeds(
        mail=address(mail),
        video=address(video),
        orders=address(orders),
        reports=address(_reports(bullmq.queue(store, "reports"))),
        legacy=address(legacy),
        paused=address(_paused(bullmq.queue(store, "newsletter"))),
        empty=address(_empty(bullmq.queue(store, "empty"))),
        crowd=address(_crowd(bullmq.queue(store, "crowd"))),
        nasty=tuple(address(queue) for queue in nasty),
        failed=address(mail, failed),
        logged=address(legacy, logged),
        parent=address(orders, parent),
        secret=address(mail, secret),
        large=address(nasty[0], large),
        held=address(video, held),
        nasty_job=address(nasty[0], nasty_job),
    )
    for name in ("mail-1", "mail-2"):
        _attend(store, mail, name, stack)
    return seeds


def address(queue: Queue, job: str = "") -> str:
    page = f"/queues/main/{slug(queue.base)}/"
    return f"{page}jobs/{slug(job)}" if job else page


def _mail(queue: Queue) -> tuple[Queue, str, str]:
    reason = "SMTP 550: mailbox <b>unavailable</b>\nafter 3 tries; token=" + SECRET
    failed = queue.add("send", {"to": "ann@example.org", "reason": reason}, attempts=3)
    queue.add_many(6, "digest", {"reason": "connect ECONNREFUSED 10.0.0.7:587"})
    _work(queue, "fail", lambda counts: counts["failed"] == 7)
    queue.add_many(60, "send", {"to": "ben@example.org", "result": {"messageId": "<a@b>", "accepted": 1}})
    _work(queue, "ok", lambda counts: counts["completed"] == 60)
    queue.add_many(30, "send", {"to": "cleo@example.org", "tags": ["a", "b"], "deep": {"er": {"and": {"deeper": 1}}}})
    secret = queue.add("login", {"password": SECRET, "card": "4111 1111 1111 1111", "apiKey": SECRET, "user": "ann"})
    queue.add_many(3, "urgent", {"to": "dora@example.org"}, priority=5)
    queue.add_many(4, "later", {"to": "emil@example.org"}, delay=7_200_000)
    _count(queue)
    return queue, failed, secret


def _count(queue: Queue) -> None:
    """Ten hours of metrics as the library keeps them, newest minute first."""
    store, now = redis.Redis.from_url(queue.url), str(shared_clock.now())
    try:
        for outcome, least in (("completed", 20), ("failed", 0)):
            points = [str(least + minute * 7 % 23) for minute in range(_METRIC_MINUTES)]
            store.rpush(queue.key("metrics", outcome, "data"), *points)
            count = {"count": "40", "prevTS": now, "prevCount": "20"}
            store.hset(queue.key("metrics", outcome), mapping=count)
    finally:
        store.close()


def _video(queue: Queue) -> tuple[Queue, str]:
    lost = queue.work("hang", apart=True, lockDuration=300, stalledInterval=_HELD_MS)
    queue.add("encode", {"file": "a.mov"})
    until(lambda: queue.counts()["active"] == 1)
    lost.kill()
    holder = queue.work("hang", apart=True, lockDuration=_HELD_MS, stalledInterval=_HELD_MS, name="encoder-7")
    held = queue.add("encode", {"file": "b.mov"})
    until(lambda: queue.counts()["active"] == 2)
    holder.kill()
    return queue, held


def _orders(queue: Queue) -> tuple[Queue, str]:
    children = [{"name": f"part-{number}", "children": [{"name": "piece"}]} for number in range(3)]
    return queue, str(queue.add_flow(children, "assemble")["id"])


def _reports(queue: Queue) -> Queue:
    queue.schedule("nightly", {"pattern": "0 3 * * *", "tz": "Europe/Berlin"}, "report", {"kind": "night"})
    queue.schedule("often", {"every": 900_000}, "report")
    return queue


def _legacy(queue: Queue) -> tuple[Queue, str]:
    logged = queue.add("import", {"lines": LOG_LINES})
    _work(queue, "log", lambda counts: counts["completed"] == 1)
    queue.add_many(2, "import", {"reason": "Unexpected token < in JSON at position 0"})
    _work(queue, "fail", lambda counts: counts["failed"] == 2)
    queue.add_many(5, "import")
    return queue, logged


def _paused(queue: Queue) -> Queue:
    queue.add_many(12, "letter")
    queue.pause()
    return queue


def _empty(queue: Queue) -> Queue:
    queue.pause()  # a queue without a key does not exist
    queue.resume()
    return queue


def _crowd(queue: Queue) -> Queue:
    queue.add("seek", {"note": NEEDLE})  # found last: waiting jobs are read newest first
    queue.add_many(CROWD - 1, "seek", {"note": "hay"})
    return queue


def _nasty(library: Library, store: Store) -> tuple[tuple[Queue, ...], str, str]:
    queues = tuple(library.queue(store, name) for name in NASTY)
    for queue in queues:
        queue.add(NASTY[0] + NASTY[4], {"<b>key</b>": "</script><script>alert(2)</script>"})
    first = queues[0]
    _work(first, "ok", lambda counts: counts["completed"] == 1)
    nasty = first.add(NASTY[3], {"reason": f"{NASTY[0]} {'y' * 400}\n\tat {NASTY[4]}"}, jobId=NASTY_ID)
    _work(first, "fail", lambda counts: counts["failed"] == 1)
    large = first.add("large", {"rows": [{"number": number, "text": "z" * 60} for number in range(1200)]})
    return queues, nasty, large


def _work(queue: Queue, processor: str, done: Callable[[dict[str, int]], bool]) -> None:
    worker = queue.work(processor, concurrency=20)
    until(lambda: done(queue.counts()), what=f"{queue.base}: {processor}")
    worker.close()


def _attend(store: Store, queue: Queue, name: str, stack: ExitStack) -> None:
    """A connection as a worker's, for as long as the site lives."""
    named = f"{queue.prefix}:{b64encode(encode_name(queue.name)).decode()}:w:{name}"
    connection = store.connect(client_name=named)
    connection.ping()
    stack.callback(connection.close)
