"""[[databases]] and [[tables]]: SQL databases, and which of their tables hold jobs."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recovery.config.addresses.database_urls import BadDatabaseUrl, parse
from recovery.config.databases import Database, JobTable, TableColumns, TableStates, Value
from recovery.config.schema import DATABASE, TABLE
from recovery.config.validation import ConfigProblems, read_table, secret_file

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")  # as of a deployment
_BASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,59}")
# Quoted by the database's own rules; what could end a quote, or be taken for a parameter, is in no name.
IDENTIFIER = re.compile(r"[^\x00-\x1f\x7f\"'`\[\]%;.\\]{1,63}")
_KEYS = {"name": "name_column"}  # columns whose key is called otherwise


def read_databases(tables: list[Mapping[str, Any]], folder: Path, problems: ConfigProblems) -> tuple[Database, ...]:
    """Returns the databases whose URL can be used; the problems say what is wrong with the others."""
    built = [_database(table, f"databases[{at}].", folder, problems) for at, table in enumerate(tables, 1)]
    return tuple(database for database in built if database)


def read_tables(
    tables: list[Mapping[str, Any]], databases: frozenset[str], folder: Path, problems: ConfigProblems
) -> tuple[JobTable, ...]:
    found = [_table(table, f"tables[{at}].", databases, folder, problems) for at, table in enumerate(tables, 1)]
    queues = [(table.database, table.name) for table in found]
    for database, name in sorted({queue for queue in queues if queues.count(queue) > 1}):
        problems.add("tables", f"has {database + '/' + name!r} twice.", "Give each a unique name.")
    return tuple(found)


def _database(written: Mapping[str, Any], where: str, folder: Path, problems: ConfigProblems) -> Database | None:
    values = read_table(written, DATABASE, where, folder, problems)
    name = values["name"]
    if not _NAME.fullmatch(name):
        problems.add(f"{where}name", f"is {name!r}." if name else "is missing.", "Write up to 40 of a–z, 0–9, - and _.")
    url = _url(written, values, where, problems)
    if not url:
        return None
    try:
        place = parse(url, folder)
    except BadDatabaseUrl as error:
        problems.add(f"{where}url", error.problem, error.remedy)
        return None
    own = {"label": values["label"] or name, "read_only": values["read_only"], "timeout": values["timeout"]}
    return Database(name=name, url=url, **place, **own)


def _url(written: Mapping[str, Any], values: Mapping[str, Any], where: str, problems: ConfigProblems) -> str:
    url, path = str(values["url"]), str(values["url_file"])
    if url and path:
        problems.add(f"{where}url_file", "is set, and url too.", "Set one of the two.")
    if not url and not path and "url_file" not in written:
        problems.add(f"{where}url", "is missing.", "Write url or url_file.")
    return url if url or not path else secret_file(path, f"{where}url_file", problems)


def _table(
    written: Mapping[str, Any], where: str, databases: frozenset[str], folder: Path, problems: ConfigProblems
) -> JobTable:
    values = read_table(written, TABLE, where, folder, problems)
    if values["database"] not in databases:
        known = ", ".join(sorted(databases)) or "none"
        problem = f"is {values['database']!r}, which no [[databases]] names." if values["database"] else "is missing."
        problems.add(f"{where}database", problem, f"Known: {known}.")
    _check_names(values, where, problems)
    states = TableStates(*(_values(values[name], f"{where}{name}", problems) for name in TableStates.__slots__))
    _check_states(states, where, problems)
    return JobTable(
        database=values["database"],
        name=values["name"] or values["table"],
        table=values["table"],
        columns=TableColumns(**{role: values[_KEYS.get(role, role)] for role in TableColumns.__slots__}),
        states=states,
        attempts_limit=int(values["attempts_limit"]),
        lease_grace=round(values["lease_grace"] * 1000),
        heartbeat_limit=round(values["heartbeat_limit"] * 1000),
        age_limit=round(values["age_limit"] * 1000) or None,
        timezone=_timezone(values["timezone"], where, problems),
    )


def _check_names(values: Mapping[str, Any], where: str, problems: ConfigProblems) -> None:
    parts = values["table"].split(".")
    if not values["table"]:
        problems.add(f"{where}table", "is missing.", 'Write its name, like "jobs" or "app.jobs".')
    elif len(parts) > 2 or not all(map(IDENTIFIER.fullmatch, parts)):
        problems.add(f"{where}table", "is not a table name.", "Write TABLE or SCHEMA.TABLE, without quotes.")
    elif not _BASE.fullmatch(values["name"] or values["table"]):
        problems.add(f"{where}name", "cannot be used in a URL.", "Write up to 60 letters, digits, and _ . : -")
    for role in TableColumns.__slots__:
        key = _KEYS.get(role, role)
        if values[key] and not IDENTIFIER.fullmatch(values[key]):
            problems.add(f"{where}{key}", "is not a column name.", "Write the plain name, without quotes.")
    for key in ("id", "state"):
        if not values[key]:
            problems.add(f"{where}{key}", "is empty.", "Every job table needs it: write the column's name.")
    if values["age_limit"] and not values["started_at"]:
        problems.add(f"{where}age_limit", "is set without started_at.", "Give the column with the start time of a row.")


def _values(written: Any, where: str, problems: ConfigProblems) -> tuple[Value, ...]:
    found = tuple(written) if isinstance(written, (tuple, list)) else (written,)
    if not found:
        problems.add(where, "is empty.", "Write at least one value of the state column.")
    return found


def _check_states(states: TableStates, where: str, problems: ConfigProblems) -> None:
    """Refuses a value in two states: it would make a running row out of a finished one."""
    said = [(name, str(value)) for name in TableStates.__slots__ for value in getattr(states, name)]
    for value in _twice(value for _, value in said):
        names = [name for name, one in said if one == value]
        problems.add(
            f"{where}{names[-1]}",
            f"holds {value!r}, which is also in {names[0]}.",
            "Each value can have only one meaning.",
        )


def _twice(values: Iterator[str]) -> list[str]:
    all_of_them = list(values)
    return sorted({value for value in all_of_them if all_of_them.count(value) > 1})


def _timezone(name: str, where: str, problems: ConfigProblems) -> str:
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        problems.add(f"{where}timezone", f"is {name!r}.", 'Write a name like "UTC" or "Europe/Berlin".')
        return "UTC"
    return name
