"""Whoever can write into the state store makes nobody act: what decides an act is signed, and reads are bounded."""

from __future__ import annotations

import base64
import json
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from dashboard.live.cached_state import CachedState
from recovery import signing
from recovery.actions import precheck, runner, undo_store
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.stuck.types import VerdictKind
from recovery.errors import Garbled, Missing, Unsupported
from recovery.models import AuditEntry
from recovery.n8n import comparison_store, jobless_executions
from recovery.reads.audit import queries as book
from recovery.reads.queues import job_lists, snapshot_store
from recovery.reads.stuck import inbox_store, observations
from recovery.reads.stuck.observations import JobObservation
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.stores import registry
from recovery.stores.state import size_limits, state_keys
from tests.support.acting import ADMIN, MAIL, Bench
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db
OTHER = QueueRef("main", "bull:other")


def remove(bench: Bench, *ids: str) -> int:
    """The number of the intent."""
    results = runner.perform(bench.order(Action.REMOVE, *ids))
    return (results[0].audit or 0) - 1


def copy_of(bench: Bench, number: int, id: str) -> bytes:
    value = bench.state.client.hget(state_keys.undo_copies(number), id)
    assert isinstance(value, bytes)
    return value


SEAL = 35  # bytes in front of what is signed


def unsigned(packed: bytes) -> list[Any]:
    """What a copy holds, as a version before signatures wrote it."""
    return json.loads(packed[SEAL:])  # type: ignore[no-any-return]


# -- undo copies


def change_payload(packed: bytes) -> bytes:
    """Another job under the same id, with the signature of the first."""
    document = unsigned(packed)
    document[3] = [["", base64.b64encode(b"\x00\x04evil").decode()]]
    return packed[:SEAL] + json.dumps(document, separators=(",", ":")).encode()


def change_state(packed: bytes) -> bytes:
    document = unsigned(packed)
    document[2] = "waiting"
    return packed[:SEAL] + json.dumps(document, separators=(",", ":")).encode()


def add_key(packed: bytes) -> bytes:
    """Keys of any name under the prefix."""
    document = unsigned(packed)
    document[3].append([":planted", document[3][0][1]])
    return packed[:SEAL] + json.dumps(document, separators=(",", ":")).encode()


def as_before(packed: bytes) -> bytes:
    """A copy that a version before this one made."""
    return json.dumps(unsigned(packed)).encode()


def sign_with_another_key(packed: bytes) -> bytes:
    with override_settings(SECRET_KEY="another-key-of-another-installation-" + "x" * 20):
        return signing.seal("undo copy", packed[SEAL:], 1, MAIL.deployment, MAIL.base, "1")


def sign_for_another_purpose(packed: bytes) -> bytes:
    return signing.seal("snapshot", packed[SEAL:], 1, MAIL.deployment, MAIL.base, "1")


def random_bytes(packed: bytes) -> bytes:
    return bytes(range(256))


def nothing_but_the_mark(packed: bytes) -> bytes:
    return b"s1:"


def cut(packed: bytes) -> bytes:
    return packed[:-7]


def deep(packed: bytes) -> bytes:
    return b"[" * 100_000


@pytest.mark.parametrize(
    "forge",
    [
        *(change_payload, change_state, add_key, as_before, sign_with_another_key, sign_for_another_purpose),
        *(random_bytes, nothing_but_the_mark, cut, deep),
    ],
)
def test_a_copy_that_we_did_not_sign_is_refused_and_reaches_no_queue(
    bench: Bench, forge: Callable[[bytes], bytes]
) -> None:
    bench.failed("1")
    number = remove(bench, "1")
    bench.state.client.hset(state_keys.undo_copies(number), "1", forge(copy_of(bench, number, "1")))
    before = bench.dump()
    with pytest.raises(Unsupported, match="is not restored"):
        runner.restore(number, ADMIN, "the wrong one")
    assert bench.dump() == before


def test_a_copy_of_an_earlier_version_says_why_it_is_not_restored(bench: Bench) -> None:
    bench.failed("1")
    number = remove(bench, "1")
    bench.state.client.hset(state_keys.undo_copies(number), "1", as_before(copy_of(bench, number, "1")))
    with pytest.raises(Unsupported, match="An earlier version"):
        runner.restore(number, ADMIN, "the wrong one")


def test_a_copy_of_another_entry_job_or_queue_is_refused(bench: Bench) -> None:
    bench.failed("1", "2", "3")
    first, second = remove(bench, "1"), remove(bench, "2")
    client = bench.state.client
    client.hset(state_keys.undo_copies(second), "2", copy_of(bench, first, "1"))  # of another job and entry
    with pytest.raises(Unsupported):
        runner.restore(second, ADMIN, "the wrong one")
    packed = copy_of(bench, first, "1")
    for number, queue, id in ((first, MAIL, "2"), (second, MAIL, "1"), (first, OTHER, "1")):
        with pytest.raises(undo_store.UnusableCopy):
            undo_store.unpack(number, queue, id, packed)


def test_a_copy_that_is_signed_but_not_the_one_of_the_audit_is_refused(bench: Bench) -> None:
    """As another process with our key might write it: the outcome in the audit holds the digest of the one we made."""
    bench.failed("1")
    number = remove(bench, "1")
    _, job = undo_store.unpack(number, MAIL, "1", copy_of(bench, number, "1"))
    bench.state.client.hset(state_keys.undo_copies(number), "1", undo_store.pack(number, MAIL, job, place=3))
    with pytest.raises(Unsupported):
        runner.restore(number, ADMIN, "the wrong one")
    outcome = book.entry(number).outcome
    assert outcome
    assert len(outcome.body["jobs"][0]["kept"]) == 32


def test_a_signed_copy_with_a_key_of_another_name_is_refused(bench: Bench) -> None:
    document = [0, "1", "failed", [[":planted", ""]], "", "", 0, ""]
    packed = signing.seal("undo copy", json.dumps(document).encode(), 1, MAIL.deployment, MAIL.base, "1")
    with pytest.raises(undo_store.UnusableCopy, match="cannot be read"):
        undo_store.unpack(1, MAIL, "1", packed)


def test_beside_a_forged_copy_the_others_come_back(bench: Bench) -> None:
    bench.failed("1", "2")
    number = remove(bench, "1", "2")
    bench.state.client.hset(state_keys.undo_copies(number), "1", b"x")
    results = {one.job: one for one in runner.restore(number, ADMIN, "the wrong ones")}
    assert (results["2"].outcome, results["1"].outcome) == (Outcome.DONE, Outcome.REFUSED)
    assert "not made by this installation" in results["1"].why
    assert bench.ids(JobState.FAILED) == ["2"]
    assert book.entry(book.entries().lines[0].number).entry.body["refused"].keys() == {"1"}


def test_an_entry_that_removed_nothing_restores_nothing_however_many_copies_are_planted(bench: Bench) -> None:
    bench.orphan("1")
    runner.perform(bench.order(Action.REQUEUE, "1"))
    bench.failed("2")
    number = remove(bench, "2")
    bench.state.client.hset(state_keys.undo_copies(1), "1", copy_of(bench, number, "2"))
    with pytest.raises(Missing):
        runner.restore(1, ADMIN, "undo it")


def test_copies_signed_with_a_key_before_this_one_come_back_while_it_is_a_fallback(bench: Bench) -> None:
    from django.conf import settings

    bench.failed("1")
    number = remove(bench, "1")
    with override_settings(SECRET_KEY="the-next-key-" + "y" * 40, SECRET_KEY_FALLBACKS=[settings.SECRET_KEY]):
        (result,) = runner.restore(number, ADMIN, "the wrong one")
    assert result.outcome is Outcome.DONE


def test_without_an_outcome_in_the_audit_the_signature_decides(bench: Bench) -> None:
    """The process ended between the removal and its outcome."""
    bench.failed("1")
    number = remove(bench, "1")
    AuditEntry.objects.filter(intent=number).delete()
    (result,) = runner.restore(number, ADMIN, "the wrong one")
    assert result.outcome is Outcome.DONE


def test_a_huge_copy_is_not_read(bench: Bench) -> None:
    bench.failed("1")
    number = remove(bench, "1")
    bench.state.client.setrange("planted", 40 * 2**20, b"x")
    value = bench.state.client.get("planted")
    bench.state.client.hset(state_keys.undo_copies(number), "1", value)  # type: ignore[arg-type]
    del value
    tracemalloc.start()
    with pytest.raises(Unsupported):
        runner.restore(number, ADMIN, "the wrong one")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * 2**20


def test_names_that_are_no_numbers_in_the_list_of_copies_stop_no_removal(bench: Bench) -> None:
    bench.failed("1")
    bench.state.client.zadd(state_keys.UNDO_ENTRIES, {"no number": 1, "2": now_ms()})
    bench.state.client.hset(state_keys.UNDO_SIZES, mapping={"no number": "x", "3": "y"})
    (result,) = runner.perform(bench.order(Action.REMOVE, "1"))
    assert (result.outcome, result.can_restore) == (Outcome.DONE, True)


# -- what the scheduler tells


def forged(document: Any) -> bytes:
    return zlib.compress(json.dumps(document).encode())


def test_a_snapshot_that_we_did_not_sign_decides_nothing(bench: Bench) -> None:
    """It said that the queue is kept by another library; the queue's own Redis says by which."""
    snapshot = bench.look()
    packed = bench.state.client.get(state_keys.SNAPSHOT)
    assert isinstance(packed, bytes)
    document = json.loads(zlib.decompress(packed[35:]))
    document[4] = [["bull", 4, "", ["planted"]] for _ in document[4]]
    for value in (forged(document), packed[:35] + forged(document)):
        bench.state.client.set(state_keys.SNAPSHOT, value)
        bench.forget()
        assert snapshot_store.fetch(bench.state.client) is None
    queue = job_lists.locate(MAIL, snapshot_store.fetch(bench.state.client))
    assert queue.flavour.library == snapshot.queues[0].flavour.library


def test_an_act_goes_by_the_library_that_the_queue_s_own_redis_shows(bench: Bench) -> None:
    """Whatever the snapshot says, though it is signed: it may be half a minute old."""
    bench.failed("1")
    bench.look(LibraryVersion(QueueLibrary.BULL, 4))
    scene = precheck.build_context(MAIL, Action.RETRY)
    assert (scene.target.flavour.library, scene.queue.flavour.library) == (QueueLibrary.BULLMQ, QueueLibrary.BULLMQ)
    (result,) = runner.perform(bench.order(Action.RETRY, "1"))
    assert result.outcome is Outcome.DONE


@pytest.mark.parametrize(
    ("key", "fetch"),
    [
        (state_keys.SNAPSHOT, snapshot_store.fetch),
        (state_keys.INBOX, inbox_store.fetch),
        (state_keys.N8N, comparison_store.fetch),
    ],
    ids=["snapshot", "inbox", "n8n"],
)
def test_a_bomb_is_not_unfolded(bench: Bench, key: bytes, fetch: Callable[[Any], Any]) -> None:
    bomb = zlib.compress(b"[" + b" " * 400 * 2**20)
    for value in (bomb, b"s1:" + bytes(32) + bomb):
        bench.state.client.set(key, value)
        tracemalloc.start()
        assert not fetch(bench.state.client)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * 2**20


def test_a_mark_that_we_did_not_write_makes_no_job_an_orphan(bench: Bench) -> None:
    client, at = bench.state.client, now_ms() - 120_000
    mark = JobObservation(VerdictKind.ORPHAN, at, at, at, (at, 1, 0, 0))
    observations.save(client, MAIL, {"1": mark}, ())
    assert observations.marks(client, MAIL) == {"1": mark}
    value = client.hget(state_keys.sightings(MAIL), "1")
    assert isinstance(value, bytes)
    plain = json.dumps(["orphan", at, at, at, [at, 1, 0, 0], 0, None, False]).encode()
    client.hset(state_keys.sightings(MAIL), mapping={"1": plain, "2": value})
    client.hset(state_keys.sightings(OTHER), mapping={"1": value})
    assert observations.marks(client, MAIL) == {}
    assert observations.marks_of(client, OTHER, ["1"]) == {}


def test_what_is_remembered_of_queues_is_ours_alone(bench: Bench) -> None:
    client = bench.state.client
    rows = {b"bull:planted": json.dumps([["bull", 4, "", []], 1, 1, False]).encode()}
    client.hset(state_keys.discovered_queues("main"), mapping=rows)  # type: ignore[arg-type]
    client.hset(state_keys.watch_memory("main"), mapping={"bull:mail": "[1,1,1,1,1,[],[]]", "": '["run",5]'})
    roster = KnownQueues()
    roster.load(client, "main")
    assert roster.listing("main").queues == ()
    assert observations.memory(client, MAIL) == (observations.QueueObservation(), None)


def test_a_planted_mark_makes_no_execution_of_n8n_old_enough(bench: Bench) -> None:
    one = Execution("7", "w", "webhook", ExecutionStatus.RUNNING, started_at=1)
    client, now = bench.state.client, now_ms()
    client.hset(state_keys.N8N_ALONE, jobless_executions._field("n8n", one), now - 3_600_000)
    assert jobless_executions.first_seen(client, "n8n", [one], now) == {"7": now}
    assert jobless_executions.first_seen(client, "n8n", [one], now + 60_000) == {"7": now}, "ours stands in its place"


# -- the size of an answer


def test_an_answer_that_is_too_large_is_given_up_and_named(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size_limits, "REPLY_LIMIT", 2**20)
    client = registry.registry().state()
    client.setrange("planted", 3 * 2**20, b"x")
    client.hset(state_keys.sightings(MAIL), "1", bench.state.client.get("planted"))  # type: ignore[arg-type]
    with pytest.raises(Garbled, match="larger than 1 MB"):
        observations.marks(client, MAIL)
    assert client.ping()  # on a new connection


def test_a_string_that_is_too_large_is_none_of_ours(bench: Bench) -> None:
    client = registry.registry().state()
    client.setrange(state_keys.SNAPSHOT, size_limits.STRING_LIMIT + 10, b"x")
    assert snapshot_store.fetch(client) is None


def test_a_hash_that_is_too_large_to_be_ours_is_none(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    client = registry.registry().state()
    client.hset("small", mapping={"a": "1", b"\xff": "2"})
    assert size_limits.hash_of(size_limits.ask_hash(client, b"small")) == {b"a": b"1", b"\xff": b"2"}
    assert size_limits.hash_of(size_limits.ask_hash(client, b"none")) == {}
    client.hset("long value", "a", "x" * (size_limits.FIELD_LIMIT + 1))
    client.hset("long name", "x" * (size_limits.FIELD_LIMIT + 1), "a")
    client.hset("many", mapping={str(number): "x" for number in range(size_limits.FIELDS_LIMIT + 1)})
    for key in (b"long value", b"long name", b"many"):
        assert size_limits.hash_of(size_limits.ask_hash(client, key)) == {}


def test_planted_values_under_every_key_take_no_page_away(bench: Bench) -> None:
    """The mirror of a web process looks at all of them at once, and goes on."""
    client = bench.state.client
    keys = (
        state_keys.SNAPSHOT,
        state_keys.SCHEDULER,
        state_keys.SCANNER_HOLDS,
        state_keys.INBOX,
        state_keys.TALLIES,
        state_keys.CLOCK,
    )
    client.setrange("planted", 20 * 2**20, b"[")
    for key in keys:
        client.copy("planted", key)
    client.delete("planted")
    for key in (state_keys.SCANNERS, state_keys.GATES, state_keys.NODES, state_keys.IDEMPOTENCY_COUNTS):
        client.hset(key, "x", "[" * 200_000)
    client.zadd(state_keys.SERVERS, {"eu-1": 1})
    client.hset(state_keys.server_metrics("eu-1"), mapping={"format": "2", "id": "eu-1", "processes": "[" * 200_000})
    image = CachedState(2.0)
    for _ in range(2):
        tracemalloc.start()
        pipeline = registry.registry().state().pipeline(transaction=False)
        image.question(pipeline)
        image.answer(pipeline.execute(raise_on_error=False), now_ms())
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 40 * 2**20
    assert (image.snapshot, image.servers, image.gates, dict(image.pulses)) == (None, (), {}, {})
