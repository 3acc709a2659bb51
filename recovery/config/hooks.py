"""[[hooks]]: functions to call, or rows of the application to update, when a job of a queue was lost or recovered."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recovery.config.job_tables import IDENTIFIER
from recovery.config.schema import CHOICE, HOOK
from recovery.config.validation import ConfigProblems, read_table
from recovery.domain.hooks.types import Hook, HookEvent, HookRowUpdate, StageChoice

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_CALL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", re.ASCII)
_NEEDED = ("database", "table", "id", "stage", "to")
_OF_ROWS = (*_NEEDED, "path", "from", "failed", "choose")
_SET, _EMPTY = "set", "empty"


def read_hooks(
    tables: list[Mapping[str, Any]], databases: Collection[str], folder: Path, problems: ConfigProblems
) -> tuple[Hook, ...]:
    """Reads [[hooks]]; `databases` are the names of those that are configured."""
    found: list[Hook] = []
    for number, table in enumerate(tables, 1):
        source = _Source(f"hooks[{number}].", databases, folder)
        hook = _hook(table, source, problems)
        if any(one.name == hook.name for one in found):
            problems.add(f"{source.where}name", f"is {hook.name!r} a second time.", "Give each hook a unique name.")
        found.append(hook)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Source:
    """Place in the file where a hook is written, and the databases that it may refer to."""

    where: str
    databases: Collection[str]
    folder: Path


def _hook(written: Mapping[str, Any], source: _Source, problems: ConfigProblems) -> Hook:
    where = source.where
    values = read_table(written, HOOK, where, source.folder, problems)
    name, call = values["name"], values["call"]
    if not _NAME.fullmatch(name):
        problems.add(f"{where}name", f"is {name!r}." if name else "is missing.", "Write up to 40 of a–z, 0–9, - and _.")
    deployment, slash, base = values["queue"].partition("/")
    deployment, base = (deployment, base) if slash else ("", deployment)
    if not base:
        problems.add(f"{where}queue", "is missing.", 'Write DEPLOYMENT/BASE or BASE, like "shop/bull:mail".')
    for key in _OF_ROWS if call else ():
        if key in written:
            problems.add(f"{where}{key}", "is set, and call too.", "A hook calls a function or updates a row.")
    if call and not _CALL.fullmatch(call):
        problems.add(f"{where}call", "is not a function.", 'Write "module:function", like "shop.recovery:job_lost".')
    follow = None if call else _follow(values, source, problems)
    return Hook(name, deployment, base, _events(values, where, problems), call, follow)


def _events(values: Mapping[str, Any], where: str, problems: ConfigProblems) -> frozenset[HookEvent]:
    known = {event.value for event in HookEvent}
    strange = [name for name in values["on"] if name not in known]
    if strange or not values["on"]:
        problem = f"holds {strange[0]!r}." if strange else "is empty."
        problems.add(f"{where}on", problem, 'Write "lost", "recovered", or both.')
    return frozenset(HookEvent(name) for name in values["on"] if name in known)


def _follow(values: Mapping[str, Any], source: _Source, problems: ConfigProblems) -> HookRowUpdate:
    where, databases = source.where, source.databases
    for key in _NEEDED:
        if not values[key]:
            problems.add(f"{where}{key}", "is missing.", "Write it, or call.")
    if values["database"] and values["database"] not in databases:
        known = ", ".join(sorted(databases)) or "none"
        problems.add(
            f"{where}database", f"is {values['database']!r}, which no [[databases]] names.", f"Known: {known}."
        )
    for key in ("table", "id", "stage"):
        _check_name(values[key], f"{where}{key}", problems, parts=2 if key == "table" else 1)
    active = values["from"]
    if not active:
        problems.add(
            f"{where}from",
            "is missing.",
            "Write the stages of a row whose job runs: only rows in these stages are changed.",
        )
    choices = tuple(
        _choice(table, f"{where}choose[{number}].", source.folder, problems)
        for number, table in enumerate(values["choose"] or (), 1)
    )
    for stage in (values["to"], values["failed"], *(choice.to for choice in choices)):
        if stage and stage in active:
            problems.add(f"{where}from", f"holds {stage!r}, which rows are set to.", "Remove it from one of the two.")
    path = tuple(values["path"].split(".")) if values["path"] else ()
    if not all(path):
        problems.add(f"{where}path", "has an empty part.", 'Write names with dots between them, like "import.id".')
    place = {name: values[name] for name in ("database", "table", "id", "stage", "to", "failed")}
    return HookRowUpdate(path=path, active=active, choices=choices, **place)


def _choice(table: Mapping[str, Any], where: str, folder: Path, problems: ConfigProblems) -> StageChoice:
    values = read_table(table, CHOICE, where, folder, problems)
    for key in ("column", "to"):
        if not values[key]:
            problems.add(f"{where}{key}", "is missing.", "A choice needs a column, a condition, and the stage.")
    _check_name(values["column"], f"{where}column", problems)
    has_value = "equals" in table
    if values["is"] not in ("", _SET, _EMPTY) or bool(values["is"]) == has_value:
        problems.add(f"{where}is", "is not clear.", 'Write is = "set", is = "empty", or equals = "a value".')
    equals = values["equals"] if has_value else None
    return StageChoice(values["column"], values["to"], is_set=values["is"] != _EMPTY, equals=equals)


def _check_name(name: str, where: str, problems: ConfigProblems, *, parts: int = 1) -> None:
    """Checks the name of a table or a column: it holds nothing that could end a quote."""
    found = name.split(".")
    if name and (len(found) > parts or not all(map(IDENTIFIER.fullmatch, found))):
        problems.add(where, "is not the name of a table or a column.", "Write the plain name, without quotes.")
