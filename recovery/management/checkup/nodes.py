"""Checks servers that exporters measure: whether each exporter answers, and which servers Prometheus knows."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.config import Config
from recovery.config.nodes import Prometheus
from recovery.connections import http
from recovery.connections.http import Question
from recovery.domain.refs import shown
from recovery.errors import StoreError
from recovery.management.checkup.findings import Finding, good, silent, warning, wrong
from recovery.reads.nodes import Nodes
from recovery.scanners.nodes import page
from recovery.scanners.nodes.prometheus import EMPTY_ADVICE

_NAMED = 5  # servers named in one line


def nodes(config: Config) -> Iterator[Finding]:
    yield from _exporters(config)
    if config.prometheus:
        yield from _prometheus(config, config.prometheus)


def _exporters(config: Config) -> Iterator[Finding]:
    listed = [(node, node.exporter) for node in config.nodes if node.exporter]
    answers = http.ask([Question(exporter) for _, exporter in listed])
    for (node, exporter), answer in zip(listed, answers, strict=True):
        about = f"node {node.id}"
        if isinstance(answer, StoreError):
            yield silent(about, answer)
            continue
        try:
            found = page.read(answer.body, node.disk)
        except page.NoNode as error:
            yield wrong(about, f"{exporter.target}: {error}.", "Is this the address of a node_exporter?")
            continue
        yield good(about, f"{exporter.target} reports {len(found.cores)} cores of {found.gauges.host or 'a machine'}.")
        if found.gauges.disk_total is None:
            yield warning(about, f"It reports no disk at {node.disk}.", "Set disk to its mount point on that server.")


def _prometheus(config: Config, prometheus: Prometheus) -> Iterator[Finding]:
    target = prometheus.endpoint.target
    try:
        found = {newest.id for newest in Nodes(prometheus, config.nodes).newest()}
    except StoreError as error:
        yield silent("prometheus", error)
        return
    if found:
        named = ", ".join(map(shown, sorted(found)[:_NAMED])) + (" and more" if len(found) > _NAMED else "")
        yield good("prometheus", f"{target} knows {len(found):,} server{'s' * (len(found) > 1)}: {named}.")
    else:
        yield warning("prometheus", f"{target} reports no server.", EMPTY_ADVICE)
    for node in config.nodes:
        if node.instance and node.id not in found:
            remedy = f"Check the values of the label {prometheus.label} there."
            yield warning(f"node {node.id}", f"{target} knows no {node.instance}.", remedy)
