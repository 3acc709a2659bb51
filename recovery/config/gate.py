"""[gate] and [[servers]]: when heavy work may start, on all servers and on some, and the labels of servers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from recovery.config.nodes import ID
from recovery.config.schema import GATE, SERVER
from recovery.config.validation import ConfigProblems, read_table
from recovery.domain.gate.state_machine import GAP, GateThresholds

_LABEL_LIMIT = 60  # characters, on a card


class WithoutSample(StrEnum):
    """Answer of the gate for a server whose samples are old."""

    REFUSE = "refuse"
    PASS = "pass"  # noqa: S105 -- no password
    MEASURE = "measure"  # the gate measures its own server itself; for any other it refuses


@dataclass(frozen=True, slots=True)
class ServerGateConfig:
    """Settings of one server."""

    label: str
    terms: GateThresholds


@dataclass(frozen=True, slots=True)
class GateConfig:
    terms: GateThresholds = field(default_factory=GateThresholds)
    without_sample: WithoutSample = WithoutSample.REFUSE
    open_on_loopback: bool = False
    servers: Mapping[str, ServerGateConfig] = field(default_factory=dict, hash=False)

    def terms_of(self, server: str) -> GateThresholds:
        named = self.servers.get(server)
        return named.terms if named else self.terms

    def label_of(self, server: str) -> str:
        """Returns the label of a server on the pages."""
        named = self.servers.get(server)
        return (named.label if named else "") or server


def read_gate(
    written: Mapping[str, Any], tables: list[Mapping[str, Any]], folder: Path, problems: ConfigProblems
) -> GateConfig:
    values = read_table(written, GATE, "gate.", folder, problems)
    terms = GateThresholds(values["close_at"], values["open_at"], int(values["settle"]))
    _check(terms, "gate.", problems)
    named: dict[str, ServerGateConfig] = {}
    for number, table in enumerate(tables, 1):
        where = f"servers[{number}]."
        own = read_table(table, SERVER, where, folder, problems)
        id = _id(own["id"], named, where, problems)
        named[id] = _named(own, terms, where, problems)
    return GateConfig(terms, _without(values["without_sample"], problems), values["open_on_loopback"], named)


def _id(id: str, named: Mapping[str, ServerGateConfig], where: str, problems: ConfigProblems) -> str:
    if not ID.fullmatch(id):
        problem = f"is {id!r}." if id else "is missing."
        problems.add(f"{where}id", problem, "Write the UNSTALL_SERVER_ID of that server, or the id of a node.")
    elif id in named:
        problems.add(f"{where}id", f"is {id!r} a second time.", "Write one table for each server.")
    return id


def _named(values: Mapping[str, Any], common: GateThresholds, where: str, problems: ConfigProblems) -> ServerGateConfig:
    """Reads one server; a key that its table leaves out has the value of all servers."""
    label = values["label"]
    if len(label) > _LABEL_LIMIT or not label.isprintable():
        problems.add(
            f"{where}label", "is too long or not printable.", f"Write at most {_LABEL_LIMIT} printable characters."
        )
    terms = GateThresholds(
        values["close_at"] or common.close_at,
        values["open_at"] or common.open_at,
        int(values["settle"]) or common.settle,
    )
    _check(terms, where, problems)
    return ServerGateConfig(label, terms)


def _check(terms: GateThresholds, where: str, problems: ConfigProblems) -> None:
    if terms.close_at - terms.open_at < GAP:
        problem = f"is {terms.open_at:g}, and close_at {terms.close_at:g}."
        remedy = (
            f"Keep a gap of {GAP:g} between them: with less, normal CPU variation would open and close it constantly."
        )
        problems.add(f"{where}open_at", problem, remedy)


def _without(written: str, problems: ConfigProblems) -> WithoutSample:
    try:
        return WithoutSample(written)
    except ValueError:
        problems.add("gate.without_sample", f"is {written!r}.", 'Write "refuse", "pass" or "measure".')
        return WithoutSample.REFUSE
