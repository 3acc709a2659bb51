"""Which library keeps a queue, from what stands in Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from recovery.backends import client_list, detection
from recovery.backends.bull.reader import BullReader
from recovery.backends.bullmq.reader import BullMQReader
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.support.clients import client, library_name, listing
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

JOBS = QueueRef("main", "bull:jobs")
Look = Callable[..., LibraryVersion | None]


@pytest.fixture
def keys(valkey: Store) -> redis.Redis:
    return valkey.client


@pytest.fixture
def look(valkey: Store) -> Iterator[Look]:
    pipe = Pipe(valkey.client)

    def identify(base: str = JOBS.base, *commands: str) -> LibraryVersion | None:
        """`commands`: what the workers of this queue wait with."""
        named = listing(*(client(library_name("bull", "jobs"), id=i, cmd=cmd) for i, cmd in enumerate(commands)))
        found = client_list.parse(named, [JOBS]) if commands else ()
        return detection.identify(pipe, [base], {base: found})[0]

    yield identify
    pipe.close()


def seen(flavour: LibraryVersion | None) -> tuple[QueueLibrary, int | None, int | None]:
    assert flavour is not None
    return flavour.library, flavour.major, flavour.upto


def test_the_version_a_producer_wrote_is_believed(keys: redis.Redis, look: Look) -> None:
    keys.hset("bull:jobs:meta", "version", "bullmq:5.81.5")
    flavour = look()
    assert seen(flavour) == (QueueLibrary.BULLMQ, 5, None)
    assert flavour is not None
    assert flavour.label == "BullMQ 5.81"
    assert flavour.evidence == ("meta.version = bullmq:5.81.5 (written by a producer)",)


def test_workers_outweigh_what_a_producer_wrote(keys: redis.Redis, look: Look) -> None:
    keys.hset("bull:jobs:meta", "version", "bullmq:5.81.5")
    flavour = look(JOBS.base, "brpoplpush")
    assert seen(flavour) == (QueueLibrary.BULLMQ, 3, 4)
    assert flavour is not None
    assert flavour.mixed


def test_two_generations_of_workers_are_a_mixture(keys: redis.Redis, look: Look) -> None:
    keys.hset("bull:jobs:meta", "opts.maxLenEvents", 10000)
    flavour = look(JOBS.base, "brpoplpush", "bzpopmin", "bzpopmin")
    assert seen(flavour) == (QueueLibrary.BULLMQ, 3, 4)
    assert flavour is not None
    assert flavour.mixed
    assert "workers wait with bzpopmin (2) → BullMQ ≥ 5" in flavour.evidence


def test_without_a_version_the_range_is_shown(keys: redis.Redis, look: Look) -> None:
    keys.hset("bull:jobs:meta", "opts.maxLenEvents", 10000)
    flavour = look(JOBS.base, "bzpopmin")
    assert seen(flavour) == (QueueLibrary.BULLMQ, 5, 6)
    assert flavour is not None
    assert flavour.label == "BullMQ 5–6"


@pytest.mark.parametrize(("field", "expected"), [("ats", (5, 6)), ("atm", (5, 6)), ("stc", (5, 6)), ("rjk", (None, 6))])
def test_fields_of_jobs_tell_the_generation(keys: redis.Redis, look: Look, field: str, expected: object) -> None:
    keys.set("bull:jobs:id", 1)
    keys.xadd("bull:jobs:events", {"event": "added"})
    keys.zadd("bull:jobs:completed", {"1": 1795000156536})
    keys.hset("bull:jobs:1", field, 1)
    assert seen(look())[1:] == expected


def test_jobs_left_in_wait_while_paused_mean_six(keys: redis.Redis, look: Look) -> None:
    keys.set("bull:jobs:id", 1)
    keys.hset("bull:jobs:meta", mapping={"opts.maxLenEvents": 10000, "paused": 1})
    keys.lpush("bull:jobs:wait", "1")
    assert seen(look()) == (QueueLibrary.BULLMQ, 6, None)


def test_five_and_six_on_one_queue_are_a_mixture(keys: redis.Redis, look: Look) -> None:
    keys.hset("bull:jobs:meta", mapping={"version": "bullmq:5.81.5", "paused": 1})
    keys.lpush("bull:jobs:wait", "1")
    flavour = look()
    assert flavour is not None
    assert (flavour.major, flavour.mixed) == (5, True)
    assert JobState.PAUSED in reader(flavour).capabilities(flavour).states


def test_pro_is_shown_and_left_alone(keys: redis.Redis, look: Look) -> None:
    keys.hset("bull:jobs:meta", "version", "bullmq-pro:7.1.0")
    flavour = look()
    assert flavour is not None
    assert flavour.library is QueueLibrary.PRO
    assert "Pro" in flavour.read_only


def test_an_unheard_of_writer_is_shown_and_left_alone(keys: redis.Redis, look: Look) -> None:
    keys.hset("bull:jobs:meta", "version", "otherq:1\x00")
    flavour = look()
    assert flavour is not None
    assert flavour.library is QueueLibrary.UNKNOWN
    assert "otherq" in flavour.read_only


def test_a_bullmq_newer_than_we_know_is_shown_and_left_alone(keys: redis.Redis, look: Look) -> None:
    keys.hset("bull:jobs:meta", "version", "bullmq:7.0.0")
    flavour = look()
    assert flavour is not None
    assert (flavour.library, flavour.major) == (QueueLibrary.BULLMQ, 7)
    assert "newer" in flavour.read_only


def test_a_paused_bull_queue_is_bull(keys: redis.Redis, look: Look) -> None:
    keys.set("bull:jobs:id", 1)
    keys.set("bull:jobs:meta-paused", 1)
    keys.hset("bull:jobs:meta", "paused", 1)
    keys.lpush("bull:jobs:paused", "1")
    assert seen(look()) == (QueueLibrary.BULL, 3, 4)


def test_what_bull_left_in_a_bullmq_queue_is_a_mixture(keys: redis.Redis, look: Look) -> None:
    keys.hset("bull:jobs:meta", "version", "bullmq:5.81.5")
    keys.set("bull:jobs:meta-paused", 1)
    flavour = look()
    assert flavour is not None
    assert (flavour.library, flavour.major, flavour.mixed) == (QueueLibrary.BULLMQ, 5, True)


def test_a_counter_of_another_program_is_no_queue(keys: redis.Redis, look: Look) -> None:
    keys.set("user:id", 42)
    assert look("user") is None


def test_keys_of_another_program_are_no_queue(keys: redis.Redis, look: Look) -> None:
    keys.set("shop:id", "not a number")
    keys.lpush("shop:wait", "x")
    assert look("shop") is None
    keys.set("till:id", 5)
    keys.set("till:wait", "a string")
    assert look("till") is None


def test_nothing_is_no_queue(look: Look) -> None:
    assert look() is None


def test_messages_between_workers_are_no_queue(keys: redis.Redis, look: Look) -> None:
    keys.set("bull::relay:x:id", 5)
    assert look("bull::relay:x") is None


def test_what_the_acl_hides_is_unknown_and_left_alone(valkey: Store) -> None:
    valkey.client.set("bull:jobs:id", 5)
    valkey.client.acl_setuser("half", enabled=True, nopass=True, keys=["bull:jobs:id"], commands=["+@all"])
    client = valkey.connect(username="half", password="any")
    pipe = Pipe(client)
    (flavour,) = detection.identify(pipe, ["bull:jobs"], {})
    pipe.close()
    client.close()
    assert flavour is not None
    assert flavour.library is QueueLibrary.UNKNOWN
    assert "ACL" in flavour.read_only


def test_many_bases_are_identified_in_two_round_trips(keys: redis.Redis, valkey: Store) -> None:
    for number in range(50):
        keys.hset(f"bull:q{number}:meta", "version", "bullmq:5.81.5")
    pipe = Pipe(valkey.client)
    found = detection.identify(pipe, [f"bull:q{number}" for number in range(60)], {})
    assert (sum(flavour is not None for flavour in found), pipe.trips) == (50, 1)
    pipe.close()


@pytest.mark.parametrize(
    ("flavour", "kind"),
    [
        (LibraryVersion(QueueLibrary.BULL, 4), BullReader),
        (LibraryVersion(QueueLibrary.BULLMQ, 5), BullMQReader),
        (LibraryVersion(QueueLibrary.PRO), BullMQReader),
        (LibraryVersion(), BullMQReader),
    ],
)
def test_every_flavour_has_a_reader(flavour: LibraryVersion, kind: type) -> None:
    assert type(reader(flavour)) is kind


@pytest.mark.parametrize(
    ("flavour", "names", "concurrency", "limit"),
    [
        (LibraryVersion(QueueLibrary.BULLMQ, 4, "4.18.3"), False, False, False),
        (LibraryVersion(QueueLibrary.BULLMQ, 5, "5.2.9"), False, False, False),
        (LibraryVersion(QueueLibrary.BULLMQ, 5, "5.9.0"), True, True, False),
        (LibraryVersion(QueueLibrary.BULLMQ, 5, "5.60.0"), True, True, True),
        (LibraryVersion(QueueLibrary.BULLMQ, 6), True, True, True),
        (LibraryVersion(QueueLibrary.BULL, 4), False, False, False),
    ],
)
def test_capabilities_follow_the_version(flavour: LibraryVersion, names: bool, concurrency: bool, limit: bool) -> None:
    able = reader(flavour).capabilities(flavour)
    assert (able.names_workers, able.global_concurrency, able.global_limit) == (names, concurrency, limit)
