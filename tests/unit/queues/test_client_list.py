"""Which connections are workers, and of which queue."""

from __future__ import annotations

import time

import pytest

from recovery.backends import client_list
from recovery.domain.identifiers import QueueRef
from tests.support.clients import client, library_name, listing

JOBS = QueueRef("main", "bull:jobs")
NAME = library_name("bull", "jobs")


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (NAME, ""),
        (f"{NAME}:w:mail-3", "mail-3"),
        (f"{NAME}:w:a:w:b", "a:w:b"),
        (f"{NAME}:w:w:", "w:"),
        ("bull:jobs:w:py", "py"),
    ],
    ids=["unnamed", "named", "a name that looks like two", "a name that overlaps", "the Python port"],
)
def test_a_worker_is_known_by_how_its_library_names_the_connection(written: str, name: str) -> None:
    (worker,) = client_list.parse(listing(client(written, id=31, age=60, idle=2)), [JOBS])
    assert (worker.queue, worker.name, worker.connection) == (JOBS, name, "31")
    assert (worker.age, worker.idle, worker.command, worker.address) == (60, 2, "bzpopmin", "10.0.0.1:5001")


def test_who_listens_to_events_is_no_worker() -> None:
    assert client_list.parse(listing(client(f"{NAME}:qe", cmd="xread")), [JOBS]) == ()


def test_producers_and_strangers_are_no_workers() -> None:
    others = [client(), client("redis-cli"), client("bull:other"), client(library_name("bull", "other"))]
    assert client_list.parse(listing(*others), [JOBS]) == ()


def test_the_three_connections_of_an_old_bull_worker_are_one_worker() -> None:
    three = [
        client(NAME, id=1, cmd="evalsha"),
        client(NAME, id=2, cmd="psubscribe", psub=2),
        client(NAME, id=3, cmd="brpoplpush"),
    ]
    (worker,) = client_list.parse(listing(*three), [JOBS])
    assert worker.connection == "3"


def test_both_connections_of_a_python_worker_are_one_worker() -> None:
    idle = [client("bull:jobs", id=1, cmd="evalsha"), client("bull:jobs", id=2, cmd="bzpopmin")]
    (worker,) = client_list.parse(listing(*idle), [JOBS])
    assert worker.connection == "2"
    busy = [client("bull:jobs", id=1, cmd="evalsha"), client("bull:jobs", id=2, cmd="client|setname")]
    assert len(client_list.parse(listing(*busy), [JOBS])) == 1


def test_what_a_python_workers_pool_opens_beside_them_is_no_other_worker() -> None:
    """As one that writes lines into the logs of three jobs at once."""
    pooled = [client("bull:jobs:w:py", id=number, cmd="exec") for number in (8, 9, 10)]
    known = client("bull:jobs:w:py", id=6, cmd="evalsha")
    for waits in ("client|setname", "bzpopmin"):
        (worker,) = client_list.parse(listing(known, client("bull:jobs:w:py", id=7, cmd=waits), *pooled), [JOBS])
        assert (worker.name, worker.connection) == ("py", "7")


def test_python_workers_of_one_name_are_counted_one_by_one() -> None:
    four = [client("bull:jobs:w:py", id=number, cmd="bzpopmin" if number % 2 else "evalsha") for number in range(8)]
    assert len(client_list.parse(listing(*four), [JOBS])) == 4


def test_workers_of_one_host_are_counted_one_by_one() -> None:
    four = [client(NAME, id=number, addr=f"10.0.0.1:{5000 + number}") for number in range(4)]
    assert client_list.count(client_list.parse(listing(*four), [JOBS]), JOBS) == 4


def test_a_worker_that_has_just_connected_counts() -> None:
    assert len(client_list.parse(listing(client(NAME, cmd="info")), [JOBS])) == 1
    assert len(client_list.parse(listing(client(NAME, cmd="client|setname")), [JOBS])) == 1


def test_prefixes_and_queues_with_colons_are_told_apart() -> None:
    one, other = QueueRef("main", "app:bull:mail:out"), QueueRef("main", "app:bull:mail")
    names = [library_name("app:bull", "mail:out"), library_name("app", "bull:mail")]
    found = client_list.parse(listing(*map(client, names)), [one, other])
    assert [worker.queue for worker in found] == [one, other]


def test_a_worker_in_another_database_works_on_another_queue() -> None:
    both = listing(client(NAME, id=1, db=0), client(NAME, id=2, db=3))
    assert [worker.connection for worker in client_list.parse(both, [JOBS], db=3)] == ["2"]
    assert client_list.bases(both, db=1) == set()


def test_discovery_gets_the_base_behind_each_name() -> None:
    found = client_list.bases(
        listing(client(f"{NAME}:w:mail"), client("py:queue:w:x"), client(f"{NAME}:qe"), client("cli"))
    )
    assert {"bull:jobs", "py:queue"} <= found
    assert "cli" not in found


def test_a_thousand_queues_and_thousands_of_clients_are_matched_quickly() -> None:
    refs = [QueueRef("main", f"bull:queue-{number}") for number in range(1000)]
    names = [library_name("bull", f"queue-{number}") for number in range(1000)]
    everyone = listing(*(client(name, id=number) for number, name in enumerate(names * 3)))
    started = time.process_time()
    assert len(client_list.parse(everyone, refs)) == 3000
    assert time.process_time() - started < 1.0  # it takes 30 ms; comparing each with each would take many seconds
