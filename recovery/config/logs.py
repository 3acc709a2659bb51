"""[[logs]]: sources of log lines. The lines that monitors ship are always one, under the name `servers`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recovery.config.addresses.http_endpoints import HttpEndpoint, read_endpoint
from recovery.config.schema import LOGS
from recovery.config.validation import ConfigProblems, read_table

LOKI = "loki"
FILES = "files"
STREAM = "stream"
LIMIT = 8  # sources; a page shows each as a chip
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_MATCHER = r'\s*[A-Za-z_][A-Za-z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"\s*'
_MATCHERS = re.compile(f"{_MATCHER}(?:,{_MATCHER})*", re.ASCII)
_OF_LOKI = ("url", "token_file", "username", "password_file", "tls_ca", "tenant", "match", "timeout", "server_label")
_OF_FILES = ("roots", "patterns", "server")


@dataclass(frozen=True, slots=True)
class LogSource:
    """Source of log lines. `match`: added to every Loki query. `server`: whose files they are, by its monitor's id."""

    name: str
    label: str
    kind: str
    endpoint: HttpEndpoint | None = None
    tenant: str = ""
    match: str = ""
    timeout: float = 5.0
    server_label: str = ""
    roots: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ("*.log",)
    server: str = ""


SHIPPED = LogSource("servers", "Servers", STREAM, server_label="server")


def read_logs(tables: list[Mapping[str, Any]], folder: Path, problems: ConfigProblems) -> tuple[LogSource, ...]:
    found = [SHIPPED]
    for number, table in enumerate(tables, 1):
        where = f"logs[{number}]."
        source = _source(table, where, folder, problems)
        if any(other.name == source.name for other in found):
            problems.add(f"{where}name", f"is {source.name!r} a second time.", "Give each source a unique name.")
        found.append(source)
    if len(found) > LIMIT:
        problems.add("logs", f"has {len(tables)}.", f"Write at most {LIMIT - 1}.")
    return tuple(found)


def _source(table: Mapping[str, Any], where: str, folder: Path, problems: ConfigProblems) -> LogSource:
    values = read_table(table, LOGS, where, folder, problems)
    name, kind = values["name"], values["kind"]
    if not _NAME.fullmatch(name):
        problem = f"is {name!r}." if name else "is missing."
        problems.add(f"{where}name", problem, "Write up to 40 lower-case letters, digits, - and _.")
    common = {"name": name, "label": values["label"] or name, "kind": kind}
    if kind == LOKI:
        _refuse(table, _OF_FILES, kind, where, problems)
        return LogSource(**common, **_loki(values, where, problems))
    if kind == FILES:
        _refuse(table, _OF_LOKI, kind, where, problems)
        return LogSource(**common, **_files(values, where, problems))
    problems.add(f"{where}kind", f"is {kind!r}." if kind else "is missing.", 'Write "loki" or "files".')
    return LogSource(**common)


def _refuse(table: Mapping[str, Any], keys: tuple[str, ...], kind: str, where: str, problems: ConfigProblems) -> None:
    for key in keys:
        if key in table:
            problems.add(f"{where}{key}", f"does not apply to {kind}.", "Remove it.")


def _loki(values: Mapping[str, Any], where: str, problems: ConfigProblems) -> dict[str, Any]:
    endpoint = read_endpoint(values, "url", where, problems)
    if values["match"] and not _MATCHERS.fullmatch(values["match"]):
        problems.add(f"{where}match", "is not a list of matchers.", "Write them as in a query: 'env=\"production\"'.")
    if values["server_label"] and not _LABEL.fullmatch(values["server_label"]):
        problems.add(f"{where}server_label", "is not a label name.", 'Write the plain name, like "host".')
    tenant = values["tenant"]
    if not tenant.isascii() or not (tenant.isprintable() or not tenant):
        problems.add(
            f"{where}tenant", "has characters that a header cannot contain.", "Write it as in the header X-Scope-OrgID."
        )
    kept = {key: values[key] for key in ("tenant", "match", "timeout", "server_label")}
    return {"endpoint": endpoint, **kept}


def _files(values: Mapping[str, Any], where: str, problems: ConfigProblems) -> dict[str, Any]:
    roots = tuple(values["roots"])
    if not roots:
        problems.add(f"{where}roots", "is missing.", 'Write the folders that may be read: ["/var/log/app"].')
    for root in roots:
        if not Path(root).is_absolute() or root == "/":
            problems.add(
                f"{where}roots", f"has {root!r}.", "Write folders with their absolute path, not the root folder."
            )
    for pattern in values["patterns"]:
        if not pattern or "/" in pattern:
            problems.add(f"{where}patterns", f"has {pattern!r}.", 'Write names of files, like "*.log".')
    server = values["server"]
    return {
        "roots": roots,
        "patterns": tuple(values["patterns"]),
        "server": server,
        "server_label": "server" if server else "",
    }
