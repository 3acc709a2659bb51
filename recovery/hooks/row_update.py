"""Sets the stage of the application's own row after its job, only while the row has the stage of a running job."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.config import Engine
from recovery.domain.hooks.types import HookRowUpdate, StageChoice
from recovery.domain.identifiers import printable
from recovery.hooks.function_runner import HookFailed
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql import sql_client
from recovery.stores.sql.sql_client import SqlSession

Condition = tuple[str, tuple[str, ...]]  # in SQL, with its parameters


def update_row(registry: ConnectionRegistry, rule: HookRowUpdate, row: str | int, stage: str) -> str:
    """Updates the row of one job; returns what was changed, "" for nothing. Raises StoreError, Failed.

    One statement for each choice until one finds the row, all in one transaction.
    """
    with sql_client.as_sql_client(registry.wire(rule.database)).session() as session, session.transaction():
        for to, condition in _tries(session, rule, stage):
            changed = _set(session, rule, row, to, condition)
            if changed > 1:
                raise HookFailed(f"{changed:,} rows of {rule.table} have this {rule.id}: no row was changed.")
            if changed:
                return f"{rule.table} {printable(str(row))} is {to} now."
    return ""


def _tries(session: SqlSession, rule: HookRowUpdate, stage: str) -> Iterator[tuple[str, Condition]]:
    """Yields stages with their conditions, in the order to be tried; conditions are only for a job that will run."""
    if stage == rule.to:
        for choice in rule.choices:
            yield choice.to, _condition(session, choice)
    yield stage, ("", ())


def _condition(session: SqlSession, choice: StageChoice) -> Condition:
    column = session.quoted(choice.column)
    if choice.equals is not None:
        return f" AND {column} = %s", (choice.equals,)
    return f" AND {column} IS {'NOT ' if choice.is_set else ''}NULL", ()


def _set(session: SqlSession, rule: HookRowUpdate, row: str | int, to: str, condition: Condition) -> int:
    """Runs the UPDATE; returns how many rows changed. Values go as text, which databases compare with any column."""
    column, id = session.quoted(rule.stage), session.quoted(rule.id)
    extra, parameters = condition
    # MySQL takes "42 and more" for 42.
    exact = f" AND CAST({id} AS CHAR) = %s" if session.engine is Engine.MYSQL else ""
    active = ", ".join(["%s"] * len(rule.active))
    statement = (
        f"UPDATE {session.quoted(rule.table)} SET {column} = %s "  # noqa: S608 -- names are quoted, values are parameters
        f"WHERE {id} = %s{exact} AND {column} IN ({active}){extra}"
    )
    mine = str(row)
    return session.change(statement, [to, mine, *([mine] if exact else []), *rule.active, *parameters])
