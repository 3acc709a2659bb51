"""n8n's tables as they are in PostgreSQL, written down from its migrations: three releases, of which each step of the
way between 1.0 and 2.41 is a mixture. Only the tables that hold executions and workflows.

    create(connection, "1.123")                      # in `public`, without a prefix
    create(connection, "2.41", schema="n8n", prefix="p_")

`COLUMNS[release][table]` is what information_schema tells of them: {column: (type, nullable)}.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection, sql

RELEASES = ("1.0", "1.123", "2.41")
EXECUTIONS, WORKFLOWS, BLOBS, METADATA = "execution_entity", "workflow_entity", "execution_data", "execution_metadata"
_Column = tuple[str, str]  # name, and what stands behind it in CREATE TABLE

_EXECUTION: dict[str, tuple[_Column, ...]] = {
    "1.0": (
        ("id", "serial PRIMARY KEY"),
        ("finished", "boolean NOT NULL"),
        ("mode", "varchar NOT NULL"),
        ("retryOf", "varchar"),
        ("retrySuccessId", "varchar"),
        ("startedAt", "timestamp NOT NULL"),
        ("stoppedAt", "timestamp"),
        ("waitTill", "timestamp"),
        ("status", "varchar"),
        ("workflowId", "varchar(36)"),
    ),
    "1.123": (
        ("id", "serial PRIMARY KEY"),
        ("finished", "boolean NOT NULL"),
        ("mode", "varchar NOT NULL"),
        ("retryOf", "varchar"),
        ("retrySuccessId", "varchar"),
        ("startedAt", "timestamptz(3)"),
        ("stoppedAt", "timestamptz(3)"),
        ("waitTill", "timestamptz(3)"),
        ("status", "varchar NOT NULL"),
        ("workflowId", "varchar(36) NOT NULL"),
        ("deletedAt", "timestamptz(3)"),
        ("createdAt", "timestamptz(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"),
    ),
}
_EXECUTION["2.41"] = (
    *_EXECUTION["1.123"],
    ("storedAt", "varchar(2) NOT NULL DEFAULT 'db' CHECK (\"storedAt\" IN ('db', 'fs', 's3', 'az'))"),
    ("tracingContext", "json"),
    ("deduplicationKey", "varchar(255)"),
    ("jsonSizeBytes", "bigint NOT NULL DEFAULT 0"),
    ("workflowVersionId", "varchar(36)"),
    ("binaryDataSizeBytes", "bigint NOT NULL DEFAULT 0"),
    ("usedPrivateCredentials", "boolean NOT NULL DEFAULT false"),
)
_WORKFLOW: dict[str, tuple[_Column, ...]] = {
    "1.0": (
        ("name", "varchar(128) NOT NULL"),
        ("active", "boolean NOT NULL"),
        ("nodes", "json NOT NULL"),
        ("connections", "json NOT NULL"),
        ("createdAt", "timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"),
        ("updatedAt", "timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"),
        ("settings", "json"),
        ("staticData", "json"),
        ("pinData", "json"),
        ("versionId", "char(36)"),
        ("triggerCount", "integer NOT NULL DEFAULT 0"),
        ("id", "varchar(36) PRIMARY KEY"),
    ),
    "1.123": (
        ("name", "varchar(128) NOT NULL"),
        ("active", "boolean NOT NULL"),
        ("nodes", "json NOT NULL"),
        ("connections", "json NOT NULL"),
        ("createdAt", "timestamptz(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"),
        ("updatedAt", "timestamptz(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"),
        ("settings", "json"),
        ("staticData", "json"),
        ("pinData", "json"),
        ("versionId", "char(36) NOT NULL"),
        ("triggerCount", "integer NOT NULL DEFAULT 0"),
        ("id", "varchar(36) PRIMARY KEY"),
        ("meta", "json"),
        ("parentFolderId", "varchar(36)"),
        ("isArchived", "boolean NOT NULL DEFAULT false"),
        ("versionCounter", "integer NOT NULL DEFAULT 1"),
        ("description", "text"),
        ("activeVersionId", "varchar(36)"),
    ),
}
_WORKFLOW["2.41"] = (
    *_WORKFLOW["1.123"],
    ("nodeGroups", "json NOT NULL DEFAULT '[]'"),
    ("sourceWorkflowId", "varchar"),
)
_OF_BLOBS: tuple[_Column, ...] = (
    ("executionId", "integer PRIMARY KEY"),
    ("workflowData", "json NOT NULL"),
    ("data", "text NOT NULL"),
)
_BLOB = {"1.0": _OF_BLOBS, "1.123": _OF_BLOBS, "2.41": (*_OF_BLOBS, ("workflowVersionId", "varchar(36)"))}
_KEYED: tuple[_Column, ...] = (("id", "serial PRIMARY KEY"), ("executionId", "integer NOT NULL"))
_METADATA = {
    "1.0": (*_KEYED, ("key", "text NOT NULL"), ("value", "text NOT NULL")),
    "1.123": (*_KEYED, ("key", "varchar(255) NOT NULL"), ("value", "text NOT NULL")),
}
_METADATA["2.41"] = _METADATA["1.123"]
_TABLES = {EXECUTIONS: _EXECUTION, WORKFLOWS: _WORKFLOW, BLOBS: _BLOB, METADATA: _METADATA}

# What information_schema calls these.
_CALLED = {
    "serial": "integer",
    "varchar": "character varying",
    "char": "character",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}


def _called(kind: str) -> tuple[str, bool]:
    """The type in the words of information_schema, and whether it may be NULL."""
    name = kind.partition(" ")[0].partition("(")[0]
    return _CALLED.get(name, name), "NOT NULL" not in kind and "PRIMARY KEY" not in kind


COLUMNS = {
    release: {
        table: {column: _called(kind) for column, kind in versions[release]} for table, versions in _TABLES.items()
    }
    for release in RELEASES
}


def create(connection: Connection[Any], release: str, *, schema: str = "public", prefix: str = "") -> None:
    """All four tables, empty, with the index that n8n keeps on the status."""
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
    for table, versions in _TABLES.items():
        where = sql.Identifier(schema, prefix + table)
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {} CASCADE").format(where))
        columns = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))  # type: ignore[arg-type]
            for name, kind in versions[release]
        )
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(where, columns))
    executions = sql.Identifier(schema, prefix + EXECUTIONS)
    connection.execute(sql.SQL('CREATE INDEX ON {} (status, "workflowId")').format(executions))
