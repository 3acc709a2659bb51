"""What is brought to the store: each line once, whatever happens to it and to us, and never more than is wanted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery.domain.logs.line_batches import LARGEST, unpack_lines
from recovery.monitor.shipping import stream_writer as depots
from recovery.monitor.shipping.stream_entries import PackedStreamEntry, pack_entries
from recovery.monitor.shipping.stream_writer import LogStreamWriter, WriteConflict
from recovery.servers import monitor_acl
from recovery.servers import queries as servers_queries
from recovery.stores.state import state_keys
from tests.fault.proxy import Proxy
from tests.support.logs.shipping import SERVER, Driven, append, arrived, offsets, texts
from tests.support.stores.stores import Store

DAY = 86_400_000
KEYS = {state_keys.logs(SERVER), state_keys.log_labels(SERVER), state_keys.log_offsets(SERVER), state_keys.SHIPPING}
NOW = 1_700_000_000_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "app.log"
    path.touch()
    return path


@pytest.fixture
def drive() -> Iterator[Callable[..., Driven]]:
    made: list[Driven] = []

    def driven(*arguments: object, **chosen: str) -> Driven:
        made.append(Driven(*arguments, **chosen))  # type: ignore[arg-type]
        return made[-1]

    yield driven
    for one in made:
        one.die()


@pytest.fixture
def full(state_store: Store) -> Iterator[Callable[[bool], None]]:
    def fill(is_full: bool) -> None:
        state_store.do("CONFIG", "SET", "maxmemory", "1" if is_full else "0")

    yield fill
    fill(False)


@pytest.fixture
def durable(serve: Callable[..., Store]) -> Store:
    """It has all that it ever confirmed after a power cut."""
    return serve(options={"appendonly": "yes", "appendfsync": "always"})


def test_a_write_whose_answer_is_lost_is_not_made_again(
    drive: Callable[..., Driven], state_store: Store, log: Path
) -> None:
    with Proxy(state_store.port) as proxy:
        shipping = drive(_Through(proxy), log)
        shipping.turn()
        append(log, "one", "two")
        proxy.cut_after(20)  # of the answers only that to EXEC is longer
        shipping.turn(1)
        assert texts(state_store) == ["one", "two"]
        assert len(shipping.said) == 1
        proxy.restore()
        append(log, "three")
        shipping.turn(20)
        assert texts(state_store) == ["one", "two", "three"]
        assert shipping.said[1:] == ["log lines are shipped again"]


def test_a_store_that_is_killed_and_restarted_has_each_line_once(
    drive: Callable[..., Driven], durable: Store, log: Path
) -> None:
    chance = random.Random(7)
    with Proxy(durable.port) as proxy:
        shipping = drive(_Through(proxy), log)
        shipping.turn()
        for number in range(80):
            append(log, *(f"{number}.{line}" for line in range(chance.randrange(1, 40))))
            match chance.randrange(12):
                case 0:
                    proxy.cut_after(chance.randrange(40))
                case 1:
                    proxy.cut()
                case 2 if number % 3 == 0:
                    durable.kill()
                    shipping.turn(1)
                    durable.start()
                case 3:
                    log.rename(log.with_name(f"app.log.{number}"))
                    log.touch()
                case 4:
                    shipping.die()
                    shipping = drive(_Through(proxy), log)
            shipping.turn(1)
            proxy.restore()
        shipping.turn(40)
    written = [text for path in [*log.parent.glob("app.log*")] for text in path.read_text().splitlines()]
    found = texts(durable)
    assert len(found) > 800
    assert sorted(found) == sorted(written)


def test_a_store_that_lost_everything_gets_what_comes_from_then_on(
    drive: Callable[..., Driven], state_store: Store, log: Path
) -> None:
    shipping = drive(state_store, log)
    shipping.turn()
    append(log, "before")
    shipping.turn()
    state_store.kill()
    append(log, "meanwhile")
    shipping.turn(5)
    state_store.start()
    shipping.turn(20)
    append(log, "after")
    shipping.turn()
    assert texts(state_store) == ["meanwhile", "after"]
    shipping.die()
    append(log, "later")
    drive(state_store, log).turn()
    assert texts(state_store) == ["meanwhile", "after", "later"]


def test_a_store_that_is_away_is_named_once_and_nothing_is_read_meanwhile(
    drive: Callable[..., Driven], state_store: Store, log: Path
) -> None:
    shipping = drive(state_store, log)
    shipping.turn()
    state_store.stop()
    append(log, *("x" * 1000 for _ in range(3000)))
    shipping.turn(50)
    (said,) = shipping.said
    assert "connection refused; log lines wait in their files" in said
    (tail,) = shipping.shipper._watch.tails.values()
    assert tail.place.offset == 0
    state_store.start()
    shipping.turn(20)
    assert len(texts(state_store)) == 3000


def test_a_full_store_is_named_once_and_gets_all_when_it_has_room(
    drive: Callable[..., Driven], state_store: Store, log: Path, full: Callable[[bool], None]
) -> None:
    shipping = drive(state_store, log)
    shipping.turn()
    full(True)
    append(log, "a secret")
    shipping.turn(20)
    assert texts(state_store) == []
    (said,) = shipping.said
    assert "it is full (maxmemory)" in said
    assert "secret" not in said
    assert "XADD" not in said
    full(False)
    shipping.turn(20)
    assert texts(state_store) == ["a secret"]


def test_a_replica_is_named_once_and_gets_all_when_it_leads(
    drive: Callable[..., Driven], state_store: Store, log: Path
) -> None:
    shipping = drive(state_store, log)
    shipping.turn()
    append(log, "one")
    state_store.do("REPLICAOF", "127.0.0.1", "1")
    shipping.turn(20)
    state_store.do("REPLICAOF", "NO", "ONE")
    shipping.turn(20)
    assert texts(state_store) == ["one"]
    assert "it is a read-only replica" in shipping.said[0]
    assert len(shipping.said) == 2


def test_a_key_of_another_program_is_said_before_a_line_is_lost(
    drive: Callable[..., Driven], state_store: Store, log: Path
) -> None:
    shipping = drive(state_store, log)
    shipping.turn()
    state_store.client.delete(*KEYS)
    state_store.client.set(state_keys.logs(SERVER), "mine")
    append(log, "one")
    shipping.turn(5)
    assert "WRONGTYPE" in shipping.said[0]
    state_store.client.delete(state_keys.logs(SERVER))
    shipping.turn(20)
    assert texts(state_store) == ["one"]


def test_who_was_overtaken_writes_nothing(state_store: Store) -> None:
    first, second = _depot(state_store), _depot(state_store)
    first.known()
    second.known()
    second.bring(_parcels("two"), {"file:1:2": "there"}, [], NOW)
    with pytest.raises(WriteConflict):
        first.bring(_parcels("one"), {"file:1:2": "here"}, [], NOW)
    first.known()
    between = _Between(_parcels("one"), lambda: second.bring(_parcels("three"), {}, [], NOW))
    with pytest.raises(WriteConflict):
        first.bring(between, {"file:1:2": "here"}, [], NOW)
    assert texts(state_store) == ["two", "three"]
    assert offsets(state_store)[b"file:1:2"] == b"there"
    first.close()
    second.close()


def test_two_monitors_under_one_name_lose_and_double_nothing(
    drive: Callable[..., Driven], state_store: Store, tmp_path: Path
) -> None:
    pair = [(drive(state_store, tmp_path / name / "*.log"), tmp_path / name / "a.log") for name in ("a", "b")]
    for shipping, path in pair:
        path.parent.mkdir()
        shipping.turn()
    for number in range(10):
        for shipping, path in pair:
            append(path, f"{path.parent.name} {number}")
            shipping.turn(1)
    for shipping, _ in pair * 3:
        shipping.turn(1)
    assert sorted(texts(state_store)) == [f"{name} {number}" for name in "ab" for number in range(10)]


def test_all_of_it_is_bounded_by_bytes(drive: Callable[..., Driven], state_store: Store, log: Path) -> None:
    shipping = drive(state_store, log, keep_mb="1")
    shipping.turn()
    noise = random.Random(7)
    for number in range(40):
        append(log, *(f"{number} {noise.randbytes(400).hex()}" for _ in range(250)))
        shipping.turn(1, after=0.2)
        if number == 20:  # another one goes on with the same books
            shipping.die()
            shipping = drive(state_store, log, keep_mb="1")
    used = state_store.client.memory_usage(state_keys.logs(SERVER), samples=0)
    assert 0.7 * (1 << 20) < used < 1.3 * (1 << 20)
    assert texts(state_store)[-1].startswith("39 ")


def test_what_is_too_old_leaves_with_its_labels(state_store: Store) -> None:
    depot = _depot(state_store)
    depot.known()
    now = _now(state_store)
    depot.bring(_parcels("old", container="gone"), {}, [], now)
    assert state_store.client.hkeys(state_keys.log_labels(SERVER)) == [b'{"container":"gone"}']
    depot.bring(_parcels("new", container="here"), {}, [], now + DAY + 60_000)
    assert state_store.client.hkeys(state_keys.log_labels(SERVER)) == [b'{"container":"here"}']
    assert texts(state_store) == []  # by that clock what came a moment ago is old, too
    depot.close()


def test_label_sets_are_bounded(state_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depots, "LABEL_SETS", 5)
    depot = _depot(state_store)
    depot.known()
    for number in range(20):
        depot.bring(_parcels("x", container=str(number)), {}, [], _now(state_store))
    depot.bring([*_parcels("x", container="17"), *_parcels("x", container="new")], {}, [], _now(state_store))
    kept = {labels.labels["container"] for labels in arrived(state_store)[-6:]}
    named = state_store.client.hkeys(state_keys.log_labels(SERVER))
    assert len(named) == 5
    assert {b'{"container":"17"}', b'{"container":"new"}'} <= set(named)
    assert kept >= {"17", "new"}
    depot.close()


def test_a_dead_server_leaves_nothing_behind(drive: Callable[..., Driven], state_store: Store, log: Path) -> None:
    shipping = drive(state_store, log, keep_hours="2")
    shipping.turn()
    append(log, "one")
    shipping.turn()
    assert set(state_store.client.keys("*")) == KEYS
    two_hours = 2 * 3_600_000
    assert two_hours - 60_000 < state_store.client.pttl(state_keys.logs(SERVER)) <= two_hours
    assert two_hours - 60_000 < state_store.client.pttl(state_keys.log_labels(SERVER)) <= two_hours
    assert DAY < state_store.client.pttl(state_keys.log_offsets(SERVER)) <= 8 * DAY
    state_store.client.zadd(
        state_keys.SHIPPING, {"dead": _now(state_store) - 32 * DAY, "away": _now(state_store) - 30 * DAY}
    )
    assert servers_queries.forget(state_store.client, _now(state_store)) == 1
    assert set(state_store.client.zrange(state_keys.SHIPPING, 0, -1)) == {SERVER.encode(), b"away"}


def test_a_quiet_server_stays_known(drive: Callable[..., Driven], state_store: Store, log: Path) -> None:
    shipping = drive(state_store, log)
    shipping.turn()
    state_store.client.persist(state_keys.log_offsets(SERVER))
    shipping.turn(5)
    assert state_store.client.pttl(state_keys.log_offsets(SERVER)) == -1  # nothing to say, so nothing is said
    shipping.turn(1, after=700)
    assert state_store.client.pttl(state_keys.log_offsets(SERVER)) > DAY


def test_the_user_that_the_command_prints_is_enough(
    drive: Callable[..., Driven], state_store: Store, log: Path
) -> None:
    state_store.do(*monitor_acl.rule(SERVER).split())
    one, other = (drive(_As(state_store), log, keep_mb="1") for _ in range(2))
    for number in range(3):
        append(log, f"{number}")
        one.turn(2)
        other.turn(2)  # it is overtaken now and then
    gone = log.with_name("gone")
    log.rename(gone)
    gone.unlink()
    one.turn(3, after=4000)
    assert (one.said, other.said) == ([], [])
    assert state_store.client.hlen(state_keys.log_offsets(SERVER)) > 0
    assert state_store.client.zscore(state_keys.SHIPPING, SERVER) is None, "it may not list itself"
    servers_queries.list_new(state_store.client, 0, NOW)
    assert state_store.client.zscore(state_keys.SHIPPING, SERVER) == NOW
    state_store.do("ACL", "DELUSER", monitor_acl.user(SERVER))


def test_a_parcel_is_small_enough_for_who_reads_it() -> None:
    some = [(1, b"")] * 60_000
    parcels = list(pack_entries([((), some)]))
    bodies = [parcel.fields["body"] for parcel in parcels]
    assert len(parcels) > 2
    assert sum(len(list(unpack_lines(body))) for body in bodies if isinstance(body, bytes)) == 60_000
    assert all(parcel.size < LARGEST for parcel in parcels)


class _Through:
    """Stands for a store that is reached through a proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self.url = proxy.url


class _As:
    """Stands for a store whose user is the monitor's own."""

    def __init__(self, store: Store) -> None:
        self.url = store.url.replace("//", f"//{monitor_acl.user(SERVER)}:SECRET@")


class _Between(list[PackedStreamEntry]):
    """Parcels that somebody else is quicker than: while they are being written."""

    def __init__(self, parcels: list[PackedStreamEntry], act: Callable[[], None]) -> None:
        super().__init__(parcels)
        self._act = act

    def __iter__(self) -> Iterator[PackedStreamEntry]:
        act, self._act = self._act, lambda: None
        act()
        return super().__iter__()


def _depot(store: Store) -> LogStreamWriter:
    return LogStreamWriter(store.connect(), SERVER, 1 << 20, DAY)


def _parcels(*written: str, **labels: str) -> list[PackedStreamEntry]:
    return list(pack_entries([(tuple(labels.items()), [(1, text.encode()) for text in written])]))


def _now(store: Store) -> int:
    seconds, micros = store.client.time()
    return int(seconds * 1000 + micros // 1000)
