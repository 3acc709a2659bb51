"""Renders all families as one text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics

from dashboard.metrics import health, idempotency, queues, recovery_metrics, servers
from dashboard.metrics.exposition import MetricsFormat, render_families
from dashboard.metrics.scrape_input import ScrapeInput

_EOF = "# EOF\n"
_process = CollectorRegistry(auto_describe=False)
ProcessCollector(registry=_process)
GCCollector(registry=_process)


def render_page(picture: ScrapeInput, dialect: MetricsFormat, streams: int) -> str:
    return "".join(pieces(picture, dialect, streams))


def pieces(picture: ScrapeInput, dialect: MetricsFormat, streams: int) -> Iterator[str]:
    """Yields the text one family at a time: about 7 ms for a thousand queues."""
    families = chain(
        health.families(picture, streams),
        servers.families(picture),
        recovery_metrics.families(picture),
        idempotency.families(picture),
        queues.families(picture),
    )
    yield from render_families(families, dialect)
    yield _of_process(dialect)
    if dialect is MetricsFormat.OPEN:
        yield _EOF


def _of_process(dialect: MetricsFormat) -> str:
    """Returns memory, CPU and open files of this process, as prometheus_client measures and names them."""
    if dialect is MetricsFormat.TEXT:
        return generate_latest(_process).decode()
    told: bytes = openmetrics.generate_latest(_process)  # type: ignore[no-untyped-call] # the library's own
    return told.decode().removesuffix(_EOF)
