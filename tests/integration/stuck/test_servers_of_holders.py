"""A job that lost its holder is told with the server of that holder, and how busy it was, long after both are gone."""

from __future__ import annotations

from base64 import b64encode

import pytest
import redis

from recovery import shared_clock
from recovery.domain.identifiers import QueueRef
from recovery.domain.servers.samples import Server, ServerProcess
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.domain.stuck.types import LossCause, VerdictKind
from recovery.models import Incident
from recovery.servers.sample_store import SampleStore
from recovery.stores.state import state_keys
from recovery.stores.state.shared_read import windows
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make, active

pytestmark = pytest.mark.django_db(transaction=True)

MAIL = QueueRef("main", "bull:mail")
LATER = 20_000  # ms: longer than a job is news


def connected(store: Store, name: str) -> tuple[redis.Redis, str]:
    """A worker's connection as Redis lists it, and its address."""
    client = store.connect(single_connection_client=True)
    client.client_setname(f"bull:{b64encode(b'mail').decode()}:w:{name}")
    return client, "{}:{}".format(*client.connection._sock.getsockname())


def measured(state_store: Store, cpu: float, *sockets: str) -> None:
    now = shared_clock.now()
    process = ServerProcess(7, "node", "node worker.js", now, sockets=sockets)
    SampleStore(state_store.client).publish(
        Server("eu-2", "b", now + LATER, 5_000, cpu_raw=cpu, cpu_ema=cpu, processes=(process,)), UnsentSamples()
    )
    windows.forget()


def test_a_starved_holder_and_one_that_went_are_told_with_their_server(
    watch_bench: Make, valkey: Store, state_store: Store
) -> None:
    active(valkey, MAIL.base, "1", "2", pb="mail-1", processedOn=1_760_000_000_000)
    valkey.client.hset(f"{MAIL.base}:2", "pb", "mail-2")
    valkey.client.set(f"{MAIL.base}:2:lock", "w:2", px=600_000)
    valkey.client.set(f"{MAIL.base}:stalled-check", "1", px=600_000)
    (first, one), (second, two) = connected(valkey, "mail-1"), connected(valkey, "mail-2")
    measured(state_store, 97.0, one, two)
    bench = watch_bench(valkey)
    bench.discover()
    row = bench.sees(MAIL, VerdictKind.ORPHAN)
    assert (row.job.id, row.server, row.verdict.cause) == ("1", "eu-2", LossCause.STARVED)
    assert row.verdict.cause_evidence.endswith("server eu-2 is at 97 %.")
    assert Incident.objects.get(job="1").server == "eu-2"

    second.close()
    gone = bench.sees(MAIL, VerdictKind.WORKER_LOST)
    assert (gone.job.id, gone.server) == ("2", "eu-2")
    assert gone.verdict.cause_evidence.startswith("worker mail-2 lost its connection")
    assert "(server eu-2 was at 97 %)" in gone.verdict.cause_evidence

    state_store.client.delete(state_keys.server_metrics("eu-2"))
    windows.forget()
    silent = bench.look()
    assert {row.job.id: row.server for row in silent.rows}["2"] == "eu-2", "it was seen there while it lived"
    tally = silent.tally(MAIL)
    assert tally is not None
    assert tally.holders == {"mail-2": 1}
    measured(state_store, 3.0, one)
    later = {row.job.id: row for row in bench.look(later=LATER).rows}
    assert later["1"].verdict.cause_evidence.endswith("server eu-2 was at 97 %."), "what it is at now explains nothing"
    first.close()
