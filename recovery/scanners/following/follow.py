"""Sets the stage of the application's own row after its job, only while the row has the stage of a running job."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.config import Engine
from recovery.connections import sql
from recovery.connections.registry import Registry
from recovery.connections.sql import Session
from recovery.domain.hooks import Choice, Follow
from recovery.domain.refs import shown
from recovery.scanners.following.entrances import Failed

Condition = tuple[str, tuple[str, ...]]  # in SQL, with its parameters


def follow(registry: Registry, rule: Follow, row: str | int, stage: str) -> str:
    """Updates the row of one job; returns what was changed, "" for nothing. Raises StoreError, Failed.

    One statement for each choice until one finds the row, all in one transaction.
    """
    with sql.of(registry.wire(rule.database)).session() as session, session.transaction():
        for to, condition in _tries(session, rule, stage):
            changed = _set(session, rule, row, to, condition)
            if changed > 1:
                raise Failed(f"{changed:,} rows of {rule.table} have this {rule.id}: no row was changed.")
            if changed:
                return f"{rule.table} {shown(str(row))} is {to} now."
    return ""


def _tries(session: Session, rule: Follow, stage: str) -> Iterator[tuple[str, Condition]]:
    """Yields stages with their conditions, in the order to be tried; conditions are only for a job that will run."""
    if stage == rule.to:
        for choice in rule.choices:
            yield choice.to, _condition(session, choice)
    yield stage, ("", ())


def _condition(session: Session, choice: Choice) -> Condition:
    column = session.quoted(choice.column)
    if choice.equals is not None:
        return f" AND {column} = %s", (choice.equals,)
    return f" AND {column} IS {'NOT ' if choice.is_set else ''}NULL", ()


def _set(session: Session, rule: Follow, row: str | int, to: str, condition: Condition) -> int:
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
