"""Finds in the shipped lines of a server that a worker of n8n was asked to stop and ran out of its time.

At SIGTERM n8n writes `Received SIGTERM. Shutting down...`. When its jobs outlast N8N_GRACEFUL_SHUTDOWN_TIMEOUT it
writes `Shutdown timed out after 30 seconds` and exits, with their locks left to end (`commands/base-command.js`, read
in 2.41.1). A process that is killed writes neither.
"""

from __future__ import annotations

import asyncio
import re

from recovery.config import Config
from recovery.config.logs import SHIPPED
from recovery.domain.logs.types import LogQuery
from recovery.logs.stream.source import StreamSource
from recovery.stores.state.async_client import state_client

LINES_LIMIT = 50  # of one moment of one server
_MARK = "Shutdown timed out after"
_SAID = re.compile(rf"{_MARK} (\d{{1,6}}) seconds")
_NS = 1_000_000  # in a millisecond


def find_timeouts(config: Config, server: str, start: int, end: int) -> tuple[int, ...]:
    """Returns the seconds after which workers of this server gave up waiting for their jobs, between two moments (ms).
    One search of a second at most. Raises StoreError.
    """
    query = LogQuery(((SHIPPED.server_label, frozenset({server})),), (_MARK,), start=start * _NS, end=end * _NS)
    return asyncio.run(_search(config, query))


async def _search(config: Config, query: LogQuery) -> tuple[int, ...]:
    client = state_client(config)
    source = StreamSource(SHIPPED, client)
    try:
        page = await source.search(query, limit=LINES_LIMIT)
    finally:
        await source.close()
        await client.aclose()
    found = dict.fromkeys((line.at, int(said[1])) for line in page.lines if (said := _SAID.search(line.text)))
    return tuple(seconds for _, seconds in found)
