"""Inserts many rows of one table at once, without a Django object for each: a bulk run writes ten thousand a second."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from django.db import connection, models

PARAMETERS = 30_000  # of one statement; PostgreSQL takes 65,535


def insert_rows(model: type[models.Model], columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Inserts the rows in the transaction of the caller. Every column without a default of the database is to be named.

    For PostgreSQL in one statement: psycopg sends `executemany` as a pipeline, and of a process that is stopped in the
    midst of one the server waits for the rest without end, with every lock that the transaction has.
    """
    if not rows:
        return
    quote = connection.ops.quote_name
    names, places = ", ".join(map(quote, columns)), ", ".join(["%s"] * len(columns))
    statement = f"INSERT INTO {quote(model._meta.db_table)} ({names}) VALUES "  # noqa: S608 -- our own names
    with connection.cursor() as cursor:
        if connection.vendor != "postgresql":
            cursor.executemany(f"{statement} ({places})", rows)
            return
        size = PARAMETERS // len(columns)
        for some in (rows[at : at + size] for at in range(0, len(rows), size)):
            cursor.execute(statement + ", ".join([f"({places})"] * len(some)), list(chain.from_iterable(some)))
