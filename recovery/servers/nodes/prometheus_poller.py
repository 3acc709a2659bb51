"""Reads the newest values of servers from a Prometheus every fifteen seconds; their history stays there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recovery.config.nodes import PrometheusConfig
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.domain.servers.ewma import Ewma, add_sample
from recovery.domain.servers.node_exporter import NodeProblem
from recovery.domain.servers.samples import SampleOrigin, Server
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.domain.time_units import SECOND
from recovery.errors import StoreError
from recovery.servers.nodes.sample_builder import build_sample
from recovery.servers.nodes.sample_writer import NodeSampleWriter, SampleSource, StoredSample, StoredSamples
from recovery.servers.prometheus_nodes import PrometheusNodes, PrometheusReading
from recovery.stores.registry import ConnectionRegistry

EVERY = 15.0  # seconds: few servers are scraped more often
POLLS = 10  # a server whose last scrape is longer ago is gone, as one whose monitor missed so many samples
EMPTY = "it reports no server: no node_cpu_seconds_total matches"
EMPTY_ADVICE = "Check match and label in [prometheus], and whether it scrapes any node_exporter."


class PrometheusPoller:
    """Stores samples of the servers of one Prometheus. For one thread at a time."""

    def __init__(self, registry: ConnectionRegistry, prometheus: PrometheusConfig, may: May = always_leader) -> None:
        self._target = prometheus.endpoint.target
        self._nodes = PrometheusNodes(prometheus, registry.config.nodes)
        self._post = NodeSampleWriter(registry, SampleSource.PROMETHEUS)
        self._may = may
        self._averages: dict[str, Ewma] = {}  # server → as of its last scrape, by the clock of the Prometheus
        self._trouble: NodeProblem | None = None

    def run(self, now: int) -> int:
        """Reads the newest values; returns how many samples were written. Raises StoreError of the state store."""
        found = self._newest(now)
        standing = self._post.standing([newest.id for newest in found], now)
        samples = list(self._samples(found, standing))
        if found:
            self._averages = {one.id: self._averages[one.id] for one in found if one.id in self._averages}
        if not self._may():
            return 0
        self._post.tell((self._trouble,) if self._trouble else ())
        return self._post.put((server, UnsentSamples()) for server in samples)

    def _newest(self, now: int) -> Sequence[PrometheusReading]:
        try:
            found = self._nodes.newest()
        except StoreError as error:
            self._tell(error.reason, error.advice, now)
            return ()
        if found:
            self._trouble = None
        else:
            self._tell(EMPTY, EMPTY_ADVICE, now)
        return found

    def _tell(self, says: str, advice: str, now: int) -> None:
        since = self._trouble.since if self._trouble else now
        self._trouble = NodeProblem("", self._target, says, advice, since)

    def _samples(self, found: Sequence[PrometheusReading], standing: StoredSamples) -> Iterator[Server]:
        """Yields samples of servers that were scraped again and that have no monitor and no exporter of ours."""
        for newest in found:
            kept, poll = standing.kept.get(newest.id), newest.interval + round(EVERY * SECOND)
            if newest.age > POLLS * poll or (kept and kept.outranks(SampleOrigin.PROMETHEUS)):
                self._averages.pop(newest.id, None)
            elif self._is_news(newest, kept):
                average = self._averages[newest.id] = add_sample(
                    self._averages.get(newest.id), newest.cpu, newest.at / SECOND
                )
                yield build_sample(
                    newest.id,
                    SampleOrigin.PROMETHEUS,
                    newest.gauges,
                    at=standing.now - newest.age,
                    poll=poll,  # its next scrape, and then our next look
                    busy=newest.cpu,
                    average=average.value,
                    cores=newest.cores,
                    address=newest.address,
                )

    def _is_news(self, newest: PrometheusReading, kept: StoredSample | None) -> bool:
        at, before = newest.at / SECOND, self._averages.get(newest.id)
        if before is None and kept and kept.cpu_ema is not None:  # as the leader before us left it
            before = self._averages[newest.id] = Ewma(kept.cpu_ema, at - newest.interval / SECOND)
        return before is None or before.at < at
