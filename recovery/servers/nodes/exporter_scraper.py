"""Scrapes all configured node_exporters concurrently every five seconds.

One that does not answer as it should is scraped less and less often, down to twice a minute, and delays no other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.domain.servers.ewma import Ewma, add_sample
from recovery.domain.servers.metric_history import cell_of_sample
from recovery.domain.servers.node_exporter import NodeProblem, NodeReading, percent
from recovery.domain.servers.samples import SampleOrigin, Server
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.domain.time_units import SECOND
from recovery.errors import Garbled, StoreError
from recovery.servers.nodes import exposition_parser
from recovery.servers.nodes.sample_builder import build_sample
from recovery.servers.nodes.sample_writer import NodeSampleWriter, SampleSource, StoredSample
from recovery.stores.http import http_client
from recovery.stores.http.http_client import HttpGetRequest, HttpGetResponse
from recovery.stores.registry import ConnectionRegistry

# -- exporter target
# Evaluates the scrapes of one node_exporter: counters become CPU usage, failures a pause and an error.


EVERY = 5.0  # seconds: as often as a monitor samples
LONGEST_PAUSE = 30.0  # seconds until a node that failed is asked again
APART = 3 * EVERY  # seconds: two scrapes further apart say nothing about now
_SLACK = 0.5  # seconds that a tick may come early
_STILL = 3  # scrapes in a row with the same counters: something in between caches the page


class ExporterTarget:
    """State of one exporter between two scrapes. Times are in seconds of a steady clock, but for `now`, in ms."""

    def __init__(self, id: str, exporter: HttpEndpoint, disk: str) -> None:
        self.id = id
        self.question = HttpGetRequest(exporter)
        self._disk = disk
        self.backlog = UnsentSamples()
        self.trouble: NodeProblem | None = None
        self._before: NodeReading | None = None
        self._at = 0.0
        self._average: Ewma | None = None
        self._still = 0
        self._failures = 0
        self._due_at: float | None = None

    def is_due(self, at: float, kept: StoredSample | None) -> bool:
        """Returns True if a scrape is due; never while a monitor reports this server."""
        if kept and kept.outranks(SampleOrigin.EXPORTER):
            self._forget()
            return False
        return self._due_at is None or at >= self._due_at

    def take(
        self, answer: HttpGetResponse | StoreError, now: int, at: float, kept: StoredSample | None
    ) -> Server | None:
        """Evaluates one scrape; returns None if it gives no CPU usage, as the first one and each that failed."""
        try:
            found = self._read(answer)
        except StoreError as error:
            self._fail(error, now, at)
            return None
        before, since = self._before, at - self._at
        before = before if since <= APART else None
        self._before, self._at, self._failures, self._due_at = found, at, 0, None
        busy = percent(before, found, since) if before else None
        if busy is None:
            self._wait(now, is_still=before is not None)
            return None
        self.trouble, self._still = None, 0
        if self._average is None and kept and kept.cpu_ema is not None:
            self._average = Ewma(kept.cpu_ema, at - since)  # as the leader before us left it
        self._average = add_sample(self._average, busy, at)
        server = build_sample(
            self.id,
            SampleOrigin.EXPORTER,
            found.gauges,
            at=now,
            poll=round(EVERY * SECOND),
            busy=busy,
            average=self._average.value,
            cores=len(found.cores),
            address=answer.address if isinstance(answer, HttpGetResponse) else "",
        )
        self.backlog.add(cell_of_sample(server), now - round(since * SECOND))
        return server

    def _read(self, answer: HttpGetResponse | StoreError) -> NodeReading:
        if isinstance(answer, StoreError):
            raise answer
        try:
            return exposition_parser.parse_exposition(answer.body, self._disk)
        except exposition_parser.NotNodeExporter as error:
            target = self.question.endpoint.target
            raise Garbled(target, str(error), advice="Is this the address of a node_exporter?") from error

    def _wait(self, now: int, *, is_still: bool) -> None:
        """Notes an answer without CPU usage: an earlier error stays; counters that do not change become one."""
        self._still = self._still + 1 if is_still else 0
        if self._still >= _STILL:
            advice = "Does a cache between Unstall and the exporter serve an old page?"
            self._tell(Garbled(self.question.endpoint.target, "its counters do not change", advice=advice), now)

    def _fail(self, error: StoreError, now: int, at: float) -> None:
        self._before, self._still = None, 0
        pause = min(EVERY * 2**self._failures, LONGEST_PAUSE) * random.uniform(0.8, 1.0)  # noqa: S311 -- spreads only
        self._failures += pause < LONGEST_PAUSE / 2
        self._due_at = at + pause - _SLACK
        self._tell(error, now)

    def _tell(self, error: StoreError, now: int) -> None:
        since = self.trouble.since if self.trouble else now
        self.trouble = NodeProblem(self.id, error.target, error.reason, error.advice, since)

    def _forget(self) -> None:
        self.trouble = self._before = self._average = self._due_at = None
        self._still = self._failures = 0
        self.backlog = UnsentSamples()


# -- exporter scraper


__all__ = ["EVERY", "ExporterScraper"]


class ExporterScraper:
    """Scrapes all exporters and stores the samples. For one thread at a time."""

    def __init__(
        self, registry: ConnectionRegistry, may: May = always_leader, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._watches = [
            ExporterTarget(node.id, node.exporter, node.disk) for node in registry.config.nodes if node.exporter
        ]
        self._post = NodeSampleWriter(registry, SampleSource.EXPORTERS)
        self._may = may
        self._clock = clock

    def run(self, now: int) -> int:
        """Scrapes what is due; returns how many samples were written. Raises StoreError; a backlog is written later."""
        standing = self._post.standing([watch.id for watch in self._watches], now)
        at = self._clock()
        asked = [watch for watch in self._watches if watch.is_due(at, standing.kept.get(watch.id))]
        answers = http_client.fetch_all([watch.question for watch in asked])
        samples = [
            (sample, watch.backlog)
            for watch, answer in zip(asked, answers, strict=True)
            if (sample := watch.take(answer, standing.now, at, standing.kept.get(watch.id)))
        ]
        if not self._may():
            return 0
        self._post.tell(watch.trouble for watch in self._watches if watch.trouble)
        return self._post.put(samples)
