"""What applications really put into their queues, at its worst: every page answers soon, small, and with text only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import redis
from django.test import Client

from dashboard.accounts.roles import UserRole
from recovery.domain.identifiers import decode_name, slug
from recovery.domain.queues.types import Snapshot
from tests.support.patience import patience, promptly
from tests.support.people import browser, person
from tests.support.stuck.watching import bullmq, now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db

PAGE_SECONDS = 1.0
PAGE_BYTES = 500_000
# "Load all" is asked for by a person who waits for it: eight megabytes, and what escaping makes of them.
WHOLE_SECONDS = 10.0
WHOLE_BYTES = 40_000_000
STORE_USEC = 60_000  # of the store's own time for one page; it serves others meanwhile
STORE_BYTES = 4_000_000  # what one page may fetch
MEGABYTE = 1 << 20
MARKUP = "<script>hostile</script>"
# Whoever walks over all of something blocks the server for everybody; GETs of a whole hash bring its payloads along.
FORBIDDEN = {"keys", "smembers", "hgetall", "hvals", "sort", "sort_ro", "scan", "flushall", "debug"}
QUEUE_TABS = ("active", "waiting", "prioritized", "delayed", "waiting-children", "completed", "failed", "paused")
QUEUE_TABS += ("schedulers", "workers", "history")
JOB_TABS = ("error", "data", "options", "result", "logs", "family", "raw")
BASE = b"bull:hostile"

Seed = Callable[[redis.Redis, bytes], list[bytes]]


def key(base: bytes, *parts: bytes) -> bytes:
    return b":".join((base, *parts))


def job(client: redis.Redis, base: bytes, id: bytes, state: bytes = b"failed", **fields: str | bytes | int) -> bytes:
    """A job in the state, with these fields; the newest of its list."""
    now = now_ms()
    own: dict[str, str | bytes | int] = {
        "name": "mail",
        "data": "{}",
        "opts": "{}",
        "timestamp": now,
        "finishedOn": now,
    }
    client.hset(key(base, id), mapping=own | fields)  # type: ignore[arg-type] # any bytes may be there
    if state in (b"wait", b"active", b"paused"):
        client.lpush(key(base, state), id)
    else:
        client.zadd(key(base, state), {id: now})
    return id


def odd_ids(client: redis.Redis, base: bytes) -> list[bytes]:
    ids = [
        b"a:b:c",
        b"a/b",
        b"a b",
        b"line\r\nbreak",
        MARKUP.encode(),
        b'"><img src=x>',
        b"\xff\xfe",
        b"",
        b".",
        b"%2F~",
    ]
    ids += ["\u202eüber".encode(), b"0:1", b"1:lock", b"i" * 3000]
    for number in range(100):  # some make the id of the whole payload
        job(client, base, b"%d" % number + b'{"to":"' + b"x" * 3000, b"prioritized")
    client.zadd(key(base, b"failed"), {b"wait": 1, b"meta": 2, MARKUP * 2: 3})  # ghosts, and keys of the queue's own
    states = (b"wait", b"active", b"failed", b"completed", b"delayed")
    return [b"wait", b"meta", *(job(client, base, id, states[number % 5]) for number, id in enumerate(ids))]


def odd_bytes(client: redis.Redis, base: bytes) -> list[bytes]:
    junk = b"\x00\xff\xfe" + MARKUP.encode() + bytes(range(256))
    fields = ("name", "data", "opts", "returnvalue", "failedReason", "stacktrace", "progress", "parentKey", "rjk", "pb")
    numbers = ("timestamp", "processedOn", "finishedOn", "delay", "priority", "atm", "ats", "stc")
    client.rpush(key(base, b"8", b"logs"), junk, MARKUP)
    client.set(key(base, b"9", b"lock"), junk, px=60_000)
    return [
        job(client, base, b"7", **dict.fromkeys(fields, junk)),
        job(client, base, b"8", **dict.fromkeys((*fields, *numbers), MARKUP)),
        job(client, base, b"9", b"active", **dict.fromkeys(numbers, "9" * 40)),
        job(client, base, b"10", b"delayed", **dict.fromkeys(numbers, "-1e999")),
    ]


def broken_json(client: redis.Redis, base: bytes) -> list[bytes]:
    texts = ['{"a":', "nul", '"' + MARKUP, "[1,]", '{"a":"\\ud800"}', "NaN", '{"attempts":1e400}', '{"attempts":-3}']
    ids = [job(client, base, b"%d" % number, data=one, opts=one) for number, one in enumerate(texts)]
    client.hdel(key(base, ids[0]), "opts", "data", "name", "timestamp")
    return [*ids, job(client, base, b"s", stacktrace='[1,null,{"a":2},"' + MARKUP + '"]', failedReason="")]


def huge_texts(client: redis.Redis, base: bytes) -> list[bytes]:
    """In many rows, so that a page of them would be a hundred megabytes."""
    huge = MARKUP * (5 * MEGABYTE // len(MARKUP))
    for number in range(12):
        job(client, base, b"%d" % number, failedReason=huge, returnvalue=huge)
    job(client, base, b"done", b"completed", returnvalue=huge)
    return [job(client, base, b"all", data=huge, stacktrace=json.dumps([huge]), progress=huge, name=huge), b"3"]


def full_texts(client: redis.Redis, base: bytes) -> list[bytes]:
    """Just short enough to be fetched, in every field, and every character grows when it is escaped."""
    full = "<" * 64_000
    fields = ("data", "opts", "returnvalue", "failedReason", "progress")
    ids = [
        job(client, base, b"full", **dict.fromkeys(fields, full), stacktrace=json.dumps(["\n".join(["<"] * 15_000)]))
    ]
    for number in range(100):
        job(client, base, b"%d" % number, failedReason="<" * 16_000, returnvalue="<" * 16_000)
    many = {f"field-{number}": "<" * 60_000 for number in range(150)}
    return [*ids, job(client, base, b"fields", **many)]


def long_stacks(client: redis.Redis, base: bytes) -> list[bytes]:
    return [job(client, base, b"1", stacktrace=json.dumps(["x"] * 12_000), failedReason="x")]


def wrong_types(client: redis.Redis, base: bytes) -> list[bytes]:
    for suffix in (b"wait", b"active", b"failed", b"completed", b"delayed", b"prioritized", b"repeat", b"marker"):
        client.set(key(base, suffix), MARKUP)
    for suffix in (b"id", b"stalled-check", b"limiter", b"metrics:completed", b"metrics:completed:data", b"events"):
        client.sadd(key(base, suffix), MARKUP)
    client.set(key(base, b"1"), "no hash")
    client.set(key(base, b"2", b"logs"), "no list")
    client.rpush(key(base, b"2", b"lock"), "no string")
    client.set(key(base, b"2", b"dependencies"), "no set")
    client.hset(key(base, b"2"), mapping={"name": "x", "data": "{}"})
    return [b"1", b"2"]


def many_fields(client: redis.Redis, base: bytes) -> list[bytes]:
    return [job(client, base, b"1", **{f"field-{number}": MARKUP for number in range(10_000)})]


def deep_json(client: redis.Redis, base: bytes) -> list[bytes]:
    """The last one is small, and as indented text it would be fifty megabytes."""
    depths = (20, 100, 900, 985, 10_000)
    texts = ["[" * depth + "]" * depth for depth in depths] + ['{"a":' * 400 + "1" + "}" * 400]
    texts.append("[" * 900 + ",".join(["1"] * 30_000) + "]" * 900)
    return [job(client, base, b"%d" % number, data=one, returnvalue=one, opts=one) for number, one in enumerate(texts)]


def wide_json(client: redis.Redis, base: bytes) -> list[bytes]:
    short = json.dumps(["<"] * 12_000)
    return [
        job(client, base, b"1", data=json.dumps([1] * 1_000_000)),
        job(client, base, b"2", data=short, returnvalue=json.dumps({f"<{number}": {} for number in range(4000)})),
    ]


def long_log(client: redis.Redis, base: bytes) -> list[bytes]:
    lines = key(base, b"1", b"logs")
    client.eval("for i = 1, 100000 do redis.call('RPUSH', KEYS[1], 'line ' .. i .. ARGV[1]) end", 1, lines, MARKUP)
    client.rpush(lines, MARKUP * (MEGABYTE // len(MARKUP)))
    client.rpush(key(base, b"2", b"logs"), *["<" * 4000] * 400)
    return [job(client, base, b"1", b"active"), job(client, base, b"2")]


def long_lists(client: redis.Redis, base: bytes) -> list[bytes]:
    """A hundred thousand active without a lock, a million failed, and more; most are ghosts."""
    push = "for i = ARGV[1], ARGV[2] do redis.call('LPUSH', KEYS[1], i) end"
    add = "for i = ARGV[1], ARGV[2] do redis.call('ZADD', KEYS[1], 1760000000000 + i / 3, i) end"
    _in_steps(client, push, key(base, b"active"), 100_000)
    _in_steps(client, push, key(base, b"wait"), 200_000)
    for state, count in ((b"failed", 1_000_000), (b"completed", 100_000), (b"delayed", 100_000)):
        _in_steps(client, add, key(base, state), count)
    client.eval("for i = 1, 2000 do redis.call('HSET', ARGV[1] .. i, 'name', 'mail', 'data', '{}') end", 0, base + b":")
    return [b"7", b"250000"]


def _in_steps(client: redis.Redis, script: str, target: bytes, count: int, step: int = 50_000) -> None:
    """Numbers 1 to `count`, a step at a time: a script of seconds would make the store call itself busy."""
    for first in range(1, count + 1, step):
        client.eval(script, 1, target, first, min(count, first + step - 1))


def large_family(client: redis.Redis, base: bytes) -> list[bytes]:
    child = (
        "for i = 1, 10000 do redis.call(ARGV[1], KEYS[1], unpack({ARGV[2] .. i, ARGV[3]}, 1, tonumber(ARGV[4]))) end"
    )
    for suffix, command, width in ((b"dependencies", "SADD", 1), (b"processed", "HSET", 2), (b"failed", "HSET", 2)):
        client.eval(child, 1, key(base, b"1", suffix), command, b"%b:c" % base, MARKUP * 50, width)
    client.sadd(key(base, b"1", b"dependencies"), MARKUP, b"\xff\xff", b"a:b:" * 2000)
    parent = {"parentKey": f"bull:{MARKUP}:1", "parent": json.dumps({"id": MARKUP, "queueKey": ["x"]})}
    return [job(client, base, b"1", b"waiting-children"), job(client, base, b"2", **parent)]


def odd_schedulers(client: redis.Redis, base: bytes) -> list[bytes]:
    for number, id in enumerate((MARKUP, "a:b:c:d:e", "\u202ex", "", ":" * 50, "x" * 5000)):
        client.zadd(key(base, b"repeat"), {id: [1e300, -5, 0, 1760000000000.5, float("inf"), 3][number]})
        fields = dict.fromkeys(
            ("name", "pattern", "tz", "every", "ic", "limit", "endDate", "data"), MARKUP * (number + 1)
        )
        client.hset(key(base, b"repeat", id.encode()), mapping=fields)
    client.eval(
        "for i = 1, 20000 do redis.call('ZADD', KEYS[1], 1760000000000 + i, 's' .. i) end", 1, key(base, b"repeat")
    )
    client.hset(key(base, b"meta"), mapping={"version": MARKUP, "concurrency": "9" * 50, "max": "x", "duration": "-1"})
    return []


SEEDS: tuple[Seed, ...] = (
    *(odd_ids, odd_bytes, broken_json, huge_texts, full_texts, long_stacks, wrong_types, many_fields),
    *(deep_json, wide_json, long_log, long_lists, large_family, odd_schedulers),
)


@dataclass(frozen=True, slots=True)
class Reader:
    """Opens pages and holds each to what is promised of all."""

    desk: Desk
    client: Client

    def open(self, address: str) -> str:
        self.desk.forget()
        self.desk.store.do("CONFIG", "RESETSTAT")
        with promptly(PAGE_SECONDS, address):
            answer = self.client.get(address)
        page = answer.content.decode()
        assert answer.status_code in (200, 404), (address, answer.status_code, page)
        assert len(answer.content) <= PAGE_BYTES, (address, len(answer.content))
        assert "<script>hostile" not in page, address
        assert "<img src=x" not in page, address
        assert not re.search("[\u202a-\u202e]", page), address
        self._check_the_cost(address)
        return page

    def _check_the_cost(self, address: str) -> None:
        stats = self.desk.client.info("commandstats")
        words = {name.removeprefix("cmdstat_").partition("|")[0]: usage for name, usage in stats.items()}
        assert FORBIDDEN.isdisjoint(words), (address, sorted(words))
        usec = sum(usage["usec"] for word, usage in words.items() if word not in ("config", "info"))
        assert usec <= patience(STORE_USEC), (address, usec, words)
        sent = self.desk.client.info("stats")["total_net_output_bytes"]
        assert sent <= STORE_BYTES, (address, sent)


@pytest.fixture(params=[UserRole.VIEWER, UserRole.OPERATOR], ids=str)
def reader(request: pytest.FixtureRequest, desk: Desk) -> Reader:
    """A viewer's pages go through the redaction, an operator's show all there is."""
    return Reader(desk, browser(person(request.param)))


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: seed.__name__)
def test_every_page_answers_soon_and_small_and_with_text_only(desk: Desk, reader: Reader, seed: Seed) -> None:
    bullmq(desk.client, decode_name(BASE))
    ids = seed(desk.client, BASE)
    desk.look(decode_name(BASE))
    for address in _addresses(decode_name(BASE), ids):
        reader.open(address)


NAMES = (
    b"[x]*?",
    b"{a}{b}",
    b"%2F..%00",
    b"~",
    b"a~20b",
    b"..",
    MARKUP.encode(),
    b"\xff\xfe",
    b"a:b:c",
    b"line\r\n",
    b" ",
)


def test_queues_of_any_name_have_pages_of_their_own(desk: Desk, reader: Reader) -> None:
    bases = [b"bull:" + name for name in NAMES] + [b"[p]*:x", b"\xff:y", b"{h}:z"]
    for base in bases:
        desk.client.hset(key(base, b"meta"), mapping={"version": "bullmq:5.81.5"})
        job(desk.client, base, b"1", b"wait", name=slug(decode_name(base)))
    snapshot = desk.look(*map(decode_name, bases))
    overview = reader.open("/queues")
    assert len(set(_links(overview))) == len(bases)
    for address in _links(overview):
        assert reader.open(f"{address}?tab=waiting").count("data-row") == 1
        assert reader.open(f"{address}jobs/1").count("<h1>") == 1
    assert reader.open("/search?q=1").count("data-row") == len(bases)
    _filters_are_words(reader, snapshot)


def _filters_are_words(reader: Reader, snapshot: Snapshot) -> None:
    for written in ("[x]*", "*", "?", "\\", "state:*", "-%", "deployment:[", MARKUP, "\x00", "\ud7ff" * 300):
        reader.client.get("/queues", {"q": written}).content.decode()
    assert len(snapshot.queues) == len(_links(reader.open("/queues?q=")))


@pytest.mark.parametrize("seed", [huge_texts, full_texts, wide_json], ids=lambda seed: seed.__name__)
@pytest.mark.parametrize("role", [UserRole.VIEWER, UserRole.OPERATOR], ids=str)
def test_all_of_a_payload_has_a_limit_too(desk: Desk, role: UserRole, seed: Seed) -> None:
    client = browser(person(role))
    bullmq(desk.client, decode_name(BASE))
    own = [f"/queues/main/{decode_name(BASE)}/jobs/{slug(decode_name(id))}" for id in seed(desk.client, BASE)]
    desk.look(decode_name(BASE))
    for address in [f"{page}?tab={tab}&whole" for page in own for tab in ("data", "raw", "error")]:
        desk.forget()
        with promptly(WHOLE_SECONDS, address):
            answer = client.get(address)
        assert answer.status_code == 200
        assert len(answer.content) <= WHOLE_BYTES, (address, len(answer.content))
        assert b"<script>hostile" not in answer.content


@pytest.mark.parametrize("seed", [odd_ids, odd_bytes, huge_texts, long_lists], ids=lambda seed: seed.__name__)
def test_a_search_in_them_is_bounded_and_finds_what_there_is(desk: Desk, seed: Seed) -> None:
    reader = Reader(desk, browser(person(UserRole.OPERATOR)))
    bullmq(desk.client, decode_name(BASE))
    seed(desk.client, BASE)
    job(desk.client, BASE, b"needle", b"failed", name="a needle in it", data='{"needle":"<b>"}')
    desk.look(decode_name(BASE))
    page = f"/queues/main/{slug(decode_name(BASE))}/jobs/needle"
    where = f"queue=main/{slug(decode_name(BASE))}&state=failed"
    assert page in reader.open("/search?q=needle")
    for way in ("name", "data"):
        found = reader.open(f"/search?q=needle&by={way}&{where}")
        assert page in found
    for term in ("%00", "%FF", "*", "[", "%0D%0A", "~", "0:1", "wait"):
        reader.open(f"/search?q={term}")


def _addresses(base: str, ids: list[bytes]) -> Iterator[str]:
    """Every page, tab and fragment of the queue and of these jobs."""
    page = f"/queues/main/{slug(base)}/"
    yield "/queues"
    yield "/queues/rows"
    for tab in QUEUE_TABS:
        yield f"{page}?tab={tab}"
        yield f"{page}tab?tab={tab}&size=100"
    yield f"{page}chart?hours=168"
    yield f"{page}?tab=failed&cursor=f,1760000050000.0,5"
    yield f"{page}?tab=active&cursor=o,50000,5"
    for words in ("1&by=id", "mail&by=name"):
        yield f"/search?q={words}&queue=main/{slug(base)}"
    for id in ids:
        own = f"{page}jobs/{slug(decode_name(id))}"
        yield own
        yield f"{own}/life"
        for tab in JOB_TABS:
            yield f"{own}/tab?tab={tab}"
        yield f"{own}?tab=logs&from=0"


def _links(page: str) -> list[str]:
    return re.findall(r'<a id="q-[^"]*" href="([^"]*)"', page)
