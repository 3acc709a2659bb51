"""[[nodes]] and [prometheus]: servers that need no monitor, because exporters measure them already."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recovery.config.addresses.http_endpoints import HttpEndpoint, read_endpoint
from recovery.config.schema import NODE, PROMETHEUS
from recovery.config.validation import ConfigProblems, read_table

LIMIT = 200  # nodes that are asked one by one, every five seconds; for more a Prometheus is the better source
_OF_EXPORTERS = ("disk", "token_file", "username", "password_file", "tls_ca")
ID = re.compile(r"[^\s/\x00-\x1f\x7f]{1,128}")  # it stands in addresses of pages
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MATCHER = r'\s*[A-Za-z_][A-Za-z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"\s*'
_MATCHERS = re.compile(f"{_MATCHER}(?:,{_MATCHER})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """A server. Either its own exporter is read, or it is `instance` in Prometheus. `disk`: where it is mounted."""

    id: str
    exporter: HttpEndpoint | None = None
    instance: str = ""
    disk: str = "/"


@dataclass(frozen=True, slots=True)
class PrometheusConfig:
    """Metrics of servers in a Prometheus. `label` tells servers apart, `match` narrows down which series are theirs."""

    endpoint: HttpEndpoint
    label: str = "instance"
    match: str = ""
    disk: str = "/"


def read_nodes(tables: list[Mapping[str, Any]], folder: Path, problems: ConfigProblems) -> tuple[NodeConfig, ...]:
    found: list[NodeConfig] = []
    for number, table in enumerate(tables, 1):
        where = f"nodes[{number}]."
        node = _node(table, where, folder, problems)
        for key, told in (("id", "id"), ("instance", "instance")):
            own = getattr(node, told)
            if own and any(getattr(other, told) == own for other in found):
                problems.add(f"{where}{key}", f"is {own!r} a second time.", "Give each node a unique id.")
        found.append(node)
    if len(found) > LIMIT:
        problems.add("nodes", f"has {len(found)}.", f"Write at most {LIMIT}; [prometheus] takes as many as it has.")
    return tuple(found)


def read_prometheus(
    written: Mapping[str, Any] | str, nodes: tuple[NodeConfig, ...], folder: Path, problems: ConfigProblems
) -> PrometheusConfig | None:
    """Reads [prometheus]; `written` is a text where there is no such table."""
    if isinstance(written, str):
        for number, node in enumerate(nodes, 1):
            if node.instance:
                problems.add(
                    f"nodes[{number}].instance", "is set without [prometheus].", "Write exporter, or url there."
                )
        return None
    values = read_table(written, PROMETHEUS, "prometheus.", folder, problems)
    endpoint = read_endpoint(values, "url", "prometheus.", problems)
    if not _LABEL.fullmatch(values["label"]):
        problems.add("prometheus.label", "is not a label name.", 'Write the plain name, like "instance".')
    if values["match"] and not _MATCHERS.fullmatch(values["match"]):
        problems.add("prometheus.match", "is not a list of matchers.", "Write them as in a query: 'job=\"node\"'.")
    _check_disk(values["disk"], "prometheus.", problems)
    return PrometheusConfig(endpoint, values["label"], values["match"], values["disk"]) if endpoint else None


def _node(table: Mapping[str, Any], where: str, folder: Path, problems: ConfigProblems) -> NodeConfig:
    values = read_table(table, NODE, where, folder, problems)
    id, instance = values["id"], values["instance"]
    if not ID.fullmatch(id):
        problem = f"is {id!r}." if id else "is missing."
        problems.add(
            f"{where}id", problem, "Write the name of the server: up to 128 characters, no blank and no slash."
        )
    if bool(values["exporter"]) == bool(instance):
        problem = "is set, and instance too." if instance else "is missing, and instance too."
        problems.add(f"{where}exporter", problem, "Write one of the two.")
    for key in _OF_EXPORTERS if instance else ():
        if key in table:
            problems.add(f"{where}{key}", "is set, but there is no exporter.", "Write it in [prometheus], or exporter.")
    _check_disk(values["disk"], where, problems)
    exporter = read_endpoint(values, "exporter", where, problems, query=True) if values["exporter"] else None
    return NodeConfig(id, exporter, instance, values["disk"])


def _check_disk(disk: str, where: str, problems: ConfigProblems) -> None:
    if not disk.startswith("/") or not disk.isprintable():
        problems.add(f"{where}disk", f"is {disk!r}.", 'Write the mount point of the disk, like "/" or "/data".')
