"""The application's own row follows its job: set to a stage, only where it still is in one that a running job has."""

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
    """What was changed, in words; "" when nothing was to be changed. Raises StoreError, Failed.

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
    """The choices are between stages of a job that will run."""
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
    """Values go as texts: a database compares such a literal with whatever its column is."""
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
