"""Checks servers that exporters measure: whether each exporter answers, and which servers Prometheus knows."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.config import Config
from recovery.config.nodes import PrometheusConfig
from recovery.domain.identifiers import printable
from recovery.errors import StoreError
from recovery.management.doctor.findings import DoctorFinding, good, silent, warning, wrong
from recovery.servers.nodes import exposition_parser
from recovery.servers.nodes.prometheus_poller import EMPTY_ADVICE
from recovery.servers.prometheus_nodes import PrometheusNodes
from recovery.stores.http import http_client
from recovery.stores.http.http_client import HttpGetRequest

_NAMED = 5  # servers named in one line


def nodes(config: Config) -> Iterator[DoctorFinding]:
    yield from _exporters(config)
    if config.prometheus:
        yield from _prometheus(config, config.prometheus)


def _exporters(config: Config) -> Iterator[DoctorFinding]:
    listed = [(node, node.exporter) for node in config.nodes if node.exporter]
    answers = http_client.fetch_all([HttpGetRequest(exporter) for _, exporter in listed])
    for (node, exporter), answer in zip(listed, answers, strict=True):
        about = f"node {node.id}"
        if isinstance(answer, StoreError):
            yield silent(about, answer)
            continue
        try:
            found = exposition_parser.parse_exposition(answer.body, node.disk)
        except exposition_parser.NotNodeExporter as error:
            yield wrong(about, f"{exporter.target}: {error}.", "Is this the address of a node_exporter?")
            continue
        yield good(about, f"{exporter.target} reports {len(found.cores)} cores of {found.gauges.host or 'a machine'}.")
        if found.gauges.disk_total is None:
            yield warning(about, f"It reports no disk at {node.disk}.", "Set disk to its mount point on that server.")


def _prometheus(config: Config, prometheus: PrometheusConfig) -> Iterator[DoctorFinding]:
    target = prometheus.endpoint.target
    try:
        found = {newest.id for newest in PrometheusNodes(prometheus, config.nodes).newest()}
    except StoreError as error:
        yield silent("prometheus", error)
        return
    if found:
        named = ", ".join(map(printable, sorted(found)[:_NAMED])) + (" and more" if len(found) > _NAMED else "")
        yield good("prometheus", f"{target} knows {len(found):,} server{'s' * (len(found) > 1)}: {named}.")
    else:
        yield warning("prometheus", f"{target} reports no server.", EMPTY_ADVICE)
    for node in config.nodes:
        if node.instance and node.id not in found:
            remedy = f"Check the values of the label {prometheus.label} there."
            yield warning(f"node {node.id}", f"{target} knows no {node.instance}.", remedy)
