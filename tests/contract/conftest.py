"""What tests of the backends have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store


@pytest.fixture
def pipe(store: Store) -> Iterator[Pipe]:
    """A wire to the queues' store."""
    pipe = Pipe(store.client)
    yield pipe
    pipe.close()
