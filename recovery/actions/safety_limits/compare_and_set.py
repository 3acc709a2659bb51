"""Compare-and-set of safety limits' rows: a row that another process changed meanwhile is read and changed anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django.db import Error, IntegrityError, transaction

from recovery.domain.audit.hash_chain import canonical
from recovery.errors import NotRecorded
from recovery.models import BrakeState
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import SafetyLimitKind, SafetyLimitRow, SafetyLimitScope, T
from recovery.stores.sql import database_clock

TRIES = 100  # one process succeeds at each, so only very many processes would need as many

Change = Callable[[T, int], T]  # the value and the time → the new value
Together = Callable[[Mapping[str, T], int], dict[str, T]]  # the same for several rows, by key


class _Moved(Exception):
    """Raised when another process was faster."""


def swap(
    kind: SafetyLimitKind[T], place: SafetyLimitScope, changes: Mapping[str, Change[T]], now: int | None = None
) -> dict[str, T]:
    """Changes all of these rows or none; returns their new values by key. `now` None: the time of the database's clock.

    Raises NotRecorded; then nothing of it was kept.
    """

    def change(values: Mapping[str, T], at: int) -> dict[str, T]:
        return {key: one(values[key], at) for key, one in changes.items()}

    return swap_together(kind, place, changes, change, now)


def swap_together(
    kind: SafetyLimitKind[T], place: SafetyLimitScope, keys: Iterable[str], change: Together[T], now: int | None = None
) -> dict[str, T]:
    """Changes rows as `swap` does, where the new value of one row depends on the others."""
    wanted = list(keys)
    try:
        for _ in range(TRIES):
            at = database_clock.now() if now is None else now
            rows = limit_rows.read_rows(kind, place, wanted)
            news = change({key: row.value for key, row in rows.items()}, at)
            try:
                _write(kind, place, rows, news, at)
            except _Moved:
                continue
            return news
    except Error as error:
        raise NotRecorded(
            f"The safety limits cannot be stored, so nothing was changed: {type(error).__name__}."
        ) from error
    raise NotRecorded("Too many processes change the safety limits at the same moment, so nothing was changed.")


def swap_one(
    kind: SafetyLimitKind[T], place: SafetyLimitScope, change: Change[T], key: str = "", now: int | None = None
) -> T:
    return swap(kind, place, {key: change}, now)[key]


def _write(
    kind: SafetyLimitKind[T],
    place: SafetyLimitScope,
    rows: Mapping[str, SafetyLimitRow[T]],
    news: Mapping[str, T],
    at: int,
) -> None:
    """Writes the rows in the order of the keys, so that two writers wait for each other and never in a ring."""
    with transaction.atomic():
        for key in sorted(news):
            row, new = rows[key], news[key]
            if row.value != new or not row.is_readable:
                here = {"kind": kind.name, "deployment": place.deployment, "base": place.base, "key": key}
                _put(here, row.version, {"state": canonical(kind.write(new)), "at": at})


def _put(here: Mapping[str, str], version: int | None, news: Mapping[str, Any]) -> None:
    if version is None:
        _add(BrakeState(**here, **news, version=1))
    elif not BrakeState.objects.filter(**here, version=version).update(**news, version=version + 1):
        raise _Moved


def _add(row: BrakeState) -> None:
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError as error:
        raise _Moved from error
