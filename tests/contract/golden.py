"""What the real libraries did to their keys, case by case, to be replayed with our own acts.

    for case in golden.cases("bullmq6", "stalled_requeue"):
        golden.replay(store, case)                       # the keys as they were before
        ... act ...
        assert golden.differences(store, case) == {}     # the keys as the library left them

`tests/golden/<file>.json` has one case a line: `before` and `after` hold every key as `{"t": type, "v": value, "ttl"}`
(sorted sets flat, streams without their ids), `pubsub` what was published meanwhile, with tokens masked. Times, tokens,
stack traces and the watchdog's key are not compared. Where we differ on purpose a `RetryRule` says so by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from recovery.backends.redis_common import decode
from recovery.domain.actions.types import ExpectedJob
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store
from tests.support.waiting import until

FILES = ("bull3", "bull4", "bullmq3", "bullmq5", "bullmq6")
BASE = "bull:q"  # every case's queue; parents of flows live in bull:par
VERSIONS = {"bull3": "3.29.3", "bull4": "4.16.5", "bullmq3": "3.16.2", "bullmq5": "5.81.5", "bullmq6": "6.7.0"}

_FOLDER = Path(__file__).parents[1] / "golden"
_LIVES_MS = 600_000  # what had a time to live keeps one that outlasts the test
_TIME = re.compile(r"-?\d{13,}(\.\d+)?")  # ms since 1970, or such a time packed into a score
_TOKEN = re.compile(r"@[0-9a-f-]{36}(:\d+)?$")
_WATCHDOG = ":stalled-check"
_STATES = (("active", JobState.ACTIVE), ("failed", JobState.FAILED), ("completed", JobState.COMPLETED))
_SETS = (("delayed", JobState.DELAYED), ("prioritized", JobState.PRIORITIZED), ("wait", JobState.WAITING))

Keyspace = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """One act of one library: the keys before and after."""

    file: str
    name: str
    before: Keyspace
    after: Keyspace
    published: tuple[tuple[str, str], ...]
    returned: Any
    error: str

    @property
    def ref(self) -> QueueRef:
        return QueueRef("main", BASE)

    @property
    def flavour(self) -> LibraryVersion:
        """As it is detected of workers at work, with the version that a producer wrote."""
        library = QueueLibrary.BULLMQ if self.file.startswith("bullmq") else QueueLibrary.BULL
        version = VERSIONS[self.file]
        return LibraryVersion(library, int(version[0]), version if library is QueueLibrary.BULLMQ else "")

    def seen(self, id: str) -> ExpectedJob:
        """The job as somebody saw it before."""
        fields = self.before.get(f"{BASE}:{id}", {}).get("v", {})
        number = {name: int(value) for name, value in fields.items() if str(value).isdigit()}
        starts = number.get("ats")
        attempts = number.get("atm", number.get("attemptsMade", 0))
        stalls = number.get("stc", number.get("stalledCounter", 0))
        token = self.before.get(f"{BASE}:{id}:lock", {}).get("v")
        return ExpectedJob(id, self._state(id), token, number.get("processedOn"), attempts, starts, stalls)

    def ids(self, suffix: str) -> list[str]:
        """The ids in one list, set or sorted set of the queue, as they stood before."""
        entry = self.before.get(f"{BASE}:{suffix}", {"t": "list", "v": []})
        return list(entry["v"][::2] if entry["t"] == "zset" else entry["v"])

    def _state(self, id: str) -> JobState:
        return next((state for suffix, state in (*_STATES, *_SETS) if id in self.ids(suffix)), JobState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Rule:
    """A difference we want: `covers(key, ours, theirs)` with both sides as they are compared, None for no such key."""

    name: str
    why: str
    covers: Callable[[str, Any, Any], bool]


@cache
def _file(name: str) -> dict[str, Any]:
    return dict(json.loads((_FOLDER / f"{name}.json").read_text("utf-8")))


def cases(file: str, *prefixes: str) -> list[Case]:
    """All cases of a library whose names begin with one of these."""
    found = [name for name in _file(file) if name.startswith(prefixes or ("",))]
    assert found, f"no case of {file} begins with {prefixes}"
    return [_case(file, name) for name in found]


def _case(file: str, name: str) -> Case:
    entry = _file(file)[name]
    published = tuple((channel, message) for channel, message in entry.get("pubsub", ()))
    return Case(file, name, entry["before"], entry["after"], published, entry.get("ret"), entry.get("err") or "")


def replay(store: Store, case: Case) -> None:
    """An empty store, and in it the keys as they were before."""
    store.flush()
    load(store, case.before)


def load(store: Store, keyspace: Keyspace) -> None:
    for key, entry in keyspace.items():
        for command in _writing(key, entry["t"], entry["v"]):
            store.do(*command)
        if entry.get("ttl"):
            store.do("PEXPIRE", key, _LIVES_MS)


def _writing(key: str, kind: str, value: Any) -> Iterator[Sequence[Any]]:
    if kind == "string":
        yield ("SET", key, value)
    elif kind == "hash":
        yield ("HSET", key, *(part for pair in value.items() for part in pair))
    elif kind == "list":
        yield ("RPUSH", key, *value)
    elif kind == "set":
        yield ("SADD", key, *value)
    elif kind == "zset":
        pairs = zip(value[1::2], value[::2], strict=True)
        yield ("ZADD", key, *(part for pair in pairs for part in pair))
    elif kind == "stream":
        yield from (("XADD", key, "*", *fields) for fields in value)
    else:
        raise ValueError(f"{key} is a {kind}")


def dump(store: Store) -> Keyspace:
    """Every key of the store, in the form of the files."""
    pipe = Pipe(store.client)
    try:
        (keys,) = pipe.call([("KEYS", "*")])
        kinds = pipe.call([("TYPE", key) for key in keys])
        lives = pipe.call([("PTTL", key) for key in keys])
        values = pipe.call([_reading(_text(kind), key) for key, kind in zip(keys, kinds, strict=True)])
    finally:
        pipe.close()
    return {
        _text(key): {"t": _text(kind), "v": _value(_text(kind), value)} | ({"ttl": True} if life >= 0 else {})
        for key, kind, life, value in sorted(zip(keys, kinds, lives, values, strict=True))
    }


# How a key of each type is read: what stands before it, and behind it.
_READING: Mapping[str, tuple[tuple[str, ...], tuple[Any, ...]]] = {
    "string": (("GET",), ()),
    "hash": (("HGETALL",), ()),
    "list": (("LRANGE",), (0, -1)),
    "set": (("SMEMBERS",), ()),
    "zset": (("ZRANGE",), (0, -1, "WITHSCORES")),
    "stream": (("XRANGE",), ("-", "+")),
}


def _reading(kind: str, key: bytes) -> tuple[Any, ...]:
    before, behind = _READING[kind]
    return (*before, key, *behind)


def _value(kind: str, reply: Any) -> Any:
    if kind == "string":
        return _text(reply)
    if kind == "stream":
        return [[_text(part) for part in fields] for _, fields in reply]
    if kind == "hash":
        return {_text(name): _text(value) for name, value in decode.pairs(reply)}
    if kind == "zset":
        return [_text(part) for pair in decode.pairs(reply) for part in pair]
    return [_text(item) for item in reply]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def differences(store: Store, case: Case, rules: Sequence[Rule] = ()) -> dict[str, tuple[Any, Any]]:
    """Keys that are not as the library left them, as (ours, theirs); without those that a rule covers."""
    ours, theirs = compared(dump(store)), compared(case.after)
    found = {
        key: (ours.get(key), theirs.get(key)) for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)
    }
    return {key: both for key, both in found.items() if not any(rule.covers(key, *both) for rule in rules)}


def compared(keyspace: Keyspace) -> Keyspace:
    """The keys with what may differ taken out: times, tokens, stack traces, the watchdog's own key."""
    return {key: _masked(key, entry) for key, entry in keyspace.items() if not key.endswith(_WATCHDOG)}


def _masked(key: str, entry: dict[str, Any]) -> dict[str, Any]:
    kind, value = entry["t"], entry["v"]
    if kind == "hash":
        value = {name: "<trace>" if name == "stacktrace" else _timeless(text) for name, text in value.items()}
    elif kind == "zset":
        pairs = zip(value[::2], value[1::2], strict=True)
        value = sorted((_timeless(member), _score(score)) for member, score in pairs)
    elif kind == "stream":
        value = [_event(fields) for fields in value]
    elif kind == "set":
        value = sorted(value)
    elif kind == "list":
        value = [_timeless(item) for item in value]
    return {"t": kind, "v": "<token>" if key.endswith(":lock") else value, "ttl": bool(entry.get("ttl"))}


def _event(fields: Sequence[str]) -> dict[str, str]:
    """Clients read the fields of an event by name: their order says nothing."""
    return {name: _timeless(value) for name, value in zip(fields[::2], fields[1::2], strict=True)}


def _timeless(text: str) -> str:
    return "<time>" if _TIME.fullmatch(text) else text


def _score(written: str) -> str:
    plain = f"{float(written):.17g}"
    return "<time>" if float(plain) >= 1e12 else plain


@contextmanager
def publishing(store: Store) -> Iterator[list[tuple[str, str]]]:
    """What is published meanwhile, in the form of `Case.published`; filled when the block ends."""
    heard: list[tuple[str, str]] = []
    client = store.connect()
    listener = client.pubsub(ignore_subscribe_messages=False)  # type: ignore[no-untyped-call] # redis-py's own
    listener.psubscribe("*")
    until(lambda: (listener.get_message(timeout=1) or {}).get("type") == "psubscribe")
    try:
        yield heard
        store.do("PUBLISH", "golden:end", "")
        while (message := until(lambda: listener.get_message(timeout=1)))["channel"] != b"golden:end":
            heard.append((_TOKEN.sub("@<token>", _text(message["channel"])), _text(message["data"])))
    finally:
        listener.close()
        client.close()
