"""Makes the sources of a configuration, for one event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redis.asyncio import Redis

from recovery.config import Config
from recovery.config.logs import FILES, LOKI, STREAM, LogSource
from recovery.logs.base import LogReader
from recovery.logs.files import FilesSource
from recovery.logs.loki import LokiSource
from recovery.logs.stream.source import StreamSource

_KINDS: Mapping[str, Callable[[LogSource, Redis], LogReader]] = {
    STREAM: StreamSource,
    LOKI: lambda spec, _: LokiSource(spec),
    FILES: lambda spec, _: FilesSource(spec),
}


def make_sources(config: Config, client: Redis) -> Mapping[str, LogReader]:
    """Makes the sources by name, in the configured order. Nothing is connected yet; each is ended with `close`."""
    return {spec.name: _KINDS[spec.kind](spec, client) for spec in config.logs}
