"""[[n8n]]: which queue is n8n's, which database holds its executions, and where its editor and its API are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recovery.config.addresses.database_urls import BadDatabaseUrl, parse
from recovery.config.databases import Database, Engine
from recovery.config.job_tables import IDENTIFIER
from recovery.config.schema import N8N, N8N_COPIES, N8N_RESCUE
from recovery.config.validation import ConfigProblems, read_table, secret_file
from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n.lost_executions import CopyLimits
from recovery.domain.time_units import DAY

NAME = "n8n"
BASE = "bull:jobs"
REDIS_PREFIX = "n8n"  # of what n8n keeps beside its queue, N8N_REDIS_KEY_PREFIX
_PREFIX_LENGTH = 100  # characters
DATABASE = "n8n-database"  # what UNSTALL_N8N_DATABASE_URL makes; a deployment may well be called n8n
_VARIABLE = "UNSTALL_N8N_DATABASE_URL"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_MEGABYTE = 1 << 20
_NOTE_LIMIT = 300  # characters: it is shown in a dialog
_POOL = "-"  # between the queue's name and a pool's
_KINDS = {Engine.MYSQL: "a MySQL or MariaDB database", Engine.SQLITE: "a SQLite file"}
_ONLY_POSTGRESQL = (
    "Executions are read in PostgreSQL only: n8n 2 supports neither MySQL nor MariaDB, and queue mode does not support "
    "SQLite. Without a database only n8n's jobs in Redis are visible."
)


@dataclass(frozen=True, slots=True)
class N8nInstallation:
    """An installation of n8n. `database` names a [[databases]]; "": nothing is known of its executions."""

    name: str
    queue: QueueRef
    database: str = ""
    schema: str = "public"
    table_prefix: str = ""
    editor: str = ""  # without a slash at its end; "": no links
    api: str = ""
    api_key: str = field(default="", repr=False)
    tls_ca: str = ""  # file of certificates to trust; "": those of the system
    redis_prefix: str = REDIS_PREFIX
    copies: CopyLimits = field(default_factory=CopyLimits)
    idempotent: Mapping[str, str] = field(default_factory=dict)  # by workflow: why its steps may run twice
    automatic: frozenset[str] = frozenset()  # workflows among them that the scheduler rescues by itself

    @property
    def executions(self) -> QueueRef:
        """Reference of its executions, for actions on one without a job. In Redis every queue name has a colon."""
        return QueueRef(self.queue.deployment, f"{self.name}.executions")

    def owns(self, queue: QueueRef) -> bool:
        """Returns True if this is its queue, or that of one of its worker pools."""
        own = self.queue
        return queue.deployment == own.deployment and (
            queue.base == own.base or queue.base.startswith(own.base + _POOL)
        )


@dataclass(frozen=True, slots=True)
class N8nReferences:
    """Names that an installation may refer to: deployments with queues in Redis, and databases by their name."""

    deployments: tuple[str, ...]
    databases: Mapping[str, Database]
    folder: Path


def database_of(url: str, folder: Path, problems: ConfigProblems) -> tuple[Database, ...]:
    """Returns the read-only database of UNSTALL_N8N_DATABASE_URL; () when it is not set, or wrong."""
    if not url:
        return ()
    try:
        place = parse(url, folder)
    except BadDatabaseUrl as error:
        problems.add(_VARIABLE, error.problem, error.remedy)
        return ()
    if place["engine"] is not Engine.POSTGRESQL:
        problems.add(_VARIABLE, f"is the URL of {_KINDS[place['engine']]}.", _ONLY_POSTGRESQL)
        return ()
    return (Database(name=DATABASE, label="n8n's database", url=url, read_only=True, **place),)


def read_n8n(
    tables: list[Mapping[str, Any]], around: N8nReferences, problems: ConfigProblems
) -> tuple[N8nInstallation, ...]:
    written = _with_variable(tables, around, problems)
    found = [_installation(table, f"n8n[{number}].", around, problems) for number, table in enumerate(written, 1)]
    _refuse_twice([one.name for one in found], "name", problems)
    _refuse_twice([str(one.queue) for one in found], "queue", problems)
    return tuple(found)


def _with_variable(
    tables: list[Mapping[str, Any]], around: N8nReferences, problems: ConfigProblems
) -> list[Mapping[str, Any]]:
    """Gives the one installation the database of the environment variable, or adds an installation for it."""
    if DATABASE not in around.databases:
        return tables
    if not tables:
        return [{"database": DATABASE}]
    if len(tables) == 1 and "database" not in tables[0]:
        return [{**tables[0], "database": DATABASE}]
    named = any(table.get("database") == DATABASE for table in tables)
    if not named:
        problems.add(_VARIABLE, "is set, but [[n8n]] also names a database.", "Set one of the two.")
    return tables


def _installation(
    written: Mapping[str, Any], where: str, around: N8nReferences, problems: ConfigProblems
) -> N8nInstallation:
    values = read_table(written, N8N, where, around.folder, problems)
    if not _NAME.fullmatch(values["name"]):
        problems.add(f"{where}name", f"is {values['name']!r}.", "Write up to 40 of a–z, 0–9, - and _.")
    editor, api = (_address(values[key], f"{where}{key}", problems) for key in ("editor", "api"))
    _check_database(values["database"], where, around, problems)
    _check_table_names(values, where, problems)
    return N8nInstallation(
        name=values["name"],
        queue=_queue(values["queue"], where, around, problems),
        database=values["database"],
        schema=values["schema"],
        table_prefix=values["table_prefix"],
        editor=editor,
        api=api or editor,
        api_key=_api_key(values, where, problems),
        tls_ca=values["tls_ca"],
        redis_prefix=_redis_prefix(values["redis_prefix"], where, problems),
        copies=_copies(values["copies"] or {}, f"{where}copies.", around, problems),
        idempotent=_idempotent(values["rescue"] or (), f"{where}rescue", around, problems),
        automatic=frozenset(
            str(table.get("workflow")) for table in values["rescue"] or () if table.get("automatic") is True
        ),
    )


def _redis_prefix(written: str, where: str, problems: ConfigProblems) -> str:
    if not written or len(written) > _PREFIX_LENGTH or not written.isprintable():
        problems.add(f"{where}redis_prefix", "is not a prefix of keys.", "Write it as in N8N_REDIS_KEY_PREFIX.")
    return written


def _copies(written: Mapping[str, Any], where: str, around: N8nReferences, problems: ConfigProblems) -> CopyLimits:
    values = read_table(written, N8N_COPIES, where, around.folder, problems)
    return CopyLimits(
        is_on=values["keep"],
        each=int(values["megabytes_each"] * _MEGABYTE),
        total=int(values["megabytes"] * _MEGABYTE),
        count=int(values["executions"]),
        keep=int(values["days"] * DAY),
    )


def _idempotent(
    tables: Sequence[Mapping[str, Any]], where: str, around: N8nReferences, problems: ConfigProblems
) -> Mapping[str, str]:
    """Returns by workflow why running its steps twice does no harm."""
    found: dict[str, str] = {}
    for number, table in enumerate(tables, 1):
        here = f"{where}[{number}]."
        values = read_table(table, N8N_RESCUE, here, around.folder, problems)
        workflow, note = values["workflow"], " ".join(values["idempotent"].split())
        if not workflow or workflow in found:
            told = f"is {workflow!r} a second time." if workflow else "is missing."
            problems.add(f"{here}workflow", told, "Write the id of a workflow, as in the address of its editor.")
        if not note or len(note) > _NOTE_LIMIT:
            told = f"has more than {_NOTE_LIMIT} characters." if note else "is missing."
            problems.add(f"{here}idempotent", told, "Write why its steps may run twice.")
        found[workflow] = note
    return found


def _queue(written: str, where: str, around: N8nReferences, problems: ConfigProblems) -> QueueRef:
    """Parses a queue; a base alone is that of the only deployment."""
    ref = QueueRef.parse(written or BASE, default="")
    known = ", ".join(around.deployments) or "none"
    if not ref.deployment and len(around.deployments) > 1:
        problems.add(
            f"{where}queue", "names no deployment, and there are several.", f"Write one of {known}, / and {BASE}."
        )
    if ref.deployment and ref.deployment not in around.deployments:
        problems.add(f"{where}queue", f"is in {ref.deployment!r}, which is not a Redis deployment.", f"Known: {known}.")
    if not ref.base:
        problems.add(f"{where}queue", "names no queue.", f'Write DEPLOYMENT/BASE or BASE, like "{BASE}".')
    # UNSTALL_REDIS_URL makes the deployment main; `up` sets it for its children when nothing is configured.
    return QueueRef(ref.deployment or next(iter(around.deployments), "main"), ref.base)


def _check_database(name: str, where: str, around: N8nReferences, problems: ConfigProblems) -> None:
    if not name:
        return
    database = around.databases.get(name)
    known = ", ".join(sorted(around.databases)) or "none"
    if database is None:
        problems.add(f"{where}database", f"is {name!r}, which no [[databases]] names.", f"Known: {known}.")
    elif not database.is_postgresql:
        problems.add(f"{where}database", f"is {name!r}, {_KINDS[database.engine]}.", _ONLY_POSTGRESQL)


def _check_table_names(values: Mapping[str, Any], where: str, problems: ConfigProblems) -> None:
    if not IDENTIFIER.fullmatch(values["schema"]):
        problems.add(f"{where}schema", "is not a schema name.", "Write it as in DB_POSTGRESDB_SCHEMA, without quotes.")
    if values["table_prefix"] and not IDENTIFIER.fullmatch(values["table_prefix"]):
        problems.add(f"{where}table_prefix", "is not a valid table prefix.", "Write it as in DB_TABLE_PREFIX.")


def _address(written: str, where: str, problems: ConfigProblems) -> str:
    """Returns the address of pages or of an API, without a slash at its end; "" after a problem."""
    if written and not _is_address(written):
        problems.add(
            where, "is not a valid address.", "Write https://n8n.example.com, without a password and without ?."
        )
        return ""
    return written.rstrip("/")


def _is_address(written: str) -> bool:
    try:
        parts = urlsplit(written)
        has_rest = bool(parts.query or parts.fragment) or "@" in written
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not has_rest
    except ValueError:
        return False


def _api_key(values: Mapping[str, Any], where: str, problems: ConfigProblems) -> str:
    key, path = str(values["api_key"]), str(values["api_key_file"])
    if key and path:
        problems.add(f"{where}api_key_file", "is set, and api_key too.", "Set one of the two.")
    key = key or (secret_file(path, f"{where}api_key_file", problems) if path else "")
    if not key.isascii() or (key and not key.isprintable()):
        problems.add(f"{where}api_key", "has characters that a header cannot contain.", "Write it as n8n shows it.")
    if key and not (values["api"] or values["editor"]):
        problems.add(f"{where}api_key", "is set without api.", "Write the address of n8n: editor, or api.")
    return key


def _refuse_twice(names: list[str], key: str, problems: ConfigProblems) -> None:
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add("n8n", f"has the {key} {name!r} twice.", "Give each a unique one.")
