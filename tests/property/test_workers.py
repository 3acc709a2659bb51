"""CLIENT LIST may hold anything a client cared to call itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recovery.backends import client_list
from recovery.domain.identifiers import QueueRef, decode_name
from tests.support.clients import client, library_name

bases = st.tuples(
    st.text(alphabet="ab:{}", min_size=1, max_size=6), st.text(alphabet="abö:/?=", min_size=1, max_size=8)
).map(":".join)


@given(st.binary(max_size=400), st.lists(bases, max_size=3))
def test_any_bytes_are_read_without_complaint(listing: bytes, known: list[str]) -> None:
    client_list.parse(listing, [QueueRef("main", base) for base in known])
    client_list.bases(listing)


@given(st.lists(st.binary(min_size=1, max_size=30).filter(lambda name: not set(name) & set(b" \r\n")), max_size=5))
def test_any_name_is_read_without_complaint(names: list[bytes]) -> None:
    listing = b"\n".join(client(name=decode_name(name)) for name in names)
    client_list.parse(listing, [QueueRef("main", "bull:jobs")])
    client_list.bases(listing)


@given(bases, st.text(alphabet="abc-:w", max_size=8))
def test_a_worker_belongs_to_the_queue_its_library_named_it_after(base: str, name: str) -> None:
    prefix, _, queue = base.rpartition(":")
    suffix = f":w:{name}" if name else ""
    listing = client(name=library_name(prefix, queue) + suffix, cmd="bzpopmin")
    (worker,) = client_list.parse(listing, [QueueRef("main", base), QueueRef("main", "other:queue")])
    assert (worker.queue.base, worker.name) == (base, name)


@given(bases)
def test_discovery_meets_the_base_among_its_candidates(base: str) -> None:
    prefix, _, queue = base.rpartition(":")
    assert base in client_list.bases(client(name=library_name(prefix, queue)))
    assert base in client_list.bases(client(name=base))
