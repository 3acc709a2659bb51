"""Findings about n8n's variables: those that this version does not read, and those that it reads in another way."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recovery.domain.secrets import is_secret_key
from recovery.domain.tuning import variables
from recovery.domain.tuning.findings import Finding, Severity, added, plain, removed, spoken, written
from recovery.domain.tuning.setups import Setup, number
from recovery.domain.tuning.versions import Version, text
from recovery.domain.tuning.workloads import Setting, Workload

_HARMLESS = re.compile(r"[\d_.,]{1,12} ?[A-Za-z]{0,3}")  # `30s`, `60_000`: whatever else stands there is not shown

_REFUSED = "own"
_MYSQL = frozenset({"mysqldb", "mariadb"})
_WITHOUT_MYSQL: Version = (2, 0, 0)
_REDIS_BACK = 30.0  # seconds in which a Redis that restarts, or fails over, is back as a rule
_REDIS_STAYS = 60.0  # what is proposed
_MS = 1000


def of_variables(setup: Setup) -> Iterator[Finding]:
    if setup.workload is None or setup.version is None:
        return
    settings = setup.workload.settings
    for setting in settings.values():
        said = variables.ignored(setting.name, setup.version)
        if said:
            yield _ignored(setup, setup.version, setting, *said)
    for setting in setup.odd:
        yield _odd(setup, setting)
    yield from _deprecated(setup, setup.version)
    yield from _database(setup, setup.version)
    yield from _redis_away(setup)
    if variables.OLD_SHUTDOWN in settings and variables.has_alias(setup.version):
        yield _alias(setup, settings[variables.OLD_SHUTDOWN], settings.get(variables.SHUTDOWN))


def _ignored(setup: Setup, version: Version, setting: Setting, why: str, instead: str) -> Finding:
    """Reports a variable that does nothing. It is removed and not renamed: its value has never been in effect."""
    says = f"{setting.name} does nothing in n8n {text(version)}: {why}."
    remedy = f"Remove it; to set what it means, write {instead}." if instead else "Remove it."
    if setting.name == variables.MAX_STALLED and not instead:
        remedy += " An execution whose worker dies is failed now; run it again from n8n, or on an error workflow."
    # A line with a secret is never shown, whatever its value is.
    edits = () if is_secret_key(setting.name) else removed(setting)
    return Finding("ignored-variable", Severity.MEDIUM, setup.where, says, remedy=remedy, edits=edits)


def _deprecated(setup: Setup, version: Version) -> Iterator[Finding]:
    settings = setup.workload.settings if setup.workload else {}
    for name, since in variables.DEPRECATED.items():
        setting = settings.get(name)
        if setting is None or version < since:
            continue
        if name == variables.PROCESS and setting.value == _REFUSED:
            says = f"n8n does not start with {name}={_REFUSED}."
            yield Finding("deprecated-variable", Severity.HIGH, setup.where, says, "", "Remove it.", removed(setting))
        else:
            says = f"n8n {text(version)} calls {name} deprecated: it does nothing any more."
            yield Finding("deprecated-variable", Severity.LOW, setup.where, says, "", "Remove it.", removed(setting))


def _database(setup: Setup, version: Version) -> Iterator[Finding]:
    """Finds a database that queue mode, or this version, does not support."""
    setting = setup.workload.settings.get(variables.DATABASE) if setup.workload else None
    value = setting.value if setting else ""
    remedy = f"Migrate to PostgreSQL, and set {variables.DATABASE}=postgresdb."
    if value == "sqlite":
        says = "n8n does not support SQLite in queue mode: its processes do not share one file."
        yield Finding("unsupported-database", Severity.MEDIUM, setup.where, says, "", remedy)
    elif value in _MYSQL and version >= _WITHOUT_MYSQL:
        says = "n8n 2 supports neither MySQL nor MariaDB."
        yield Finding("unsupported-database", Severity.HIGH, setup.where, says, "", remedy)
    elif value in _MYSQL:
        says = "MySQL and MariaDB are deprecated, and n8n 2 does not support them."
        yield Finding("unsupported-database", Severity.LOW, setup.where, says, "", remedy)


def _redis_away(setup: Setup) -> Iterator[Finding]:
    """Finds a process that exits before a Redis that restarts, or fails over, is back."""
    workload = setup.workload
    setting = workload.settings.get(variables.THRESHOLD) if workload else None
    if workload is None or (setting and setting.is_hidden):
        return
    given = number(setting.value) if setting else None
    away = variables.REDIS_AWAY if given is None else given / _MS
    if away >= _REDIS_BACK:
        return
    says = (
        f"Every n8n process exits when Redis is away for {spoken(away)}: a restart or a failover of Redis kills the "
        f"workers with what they run{unless(workload)}."
    )
    value = plain(_REDIS_STAYS * _MS)
    edits = written(setting.place, value) if setting else added(workload.variables, (variables.THRESHOLD, value))
    remedy = f"{variables.THRESHOLD} = {value}, on mains and webhook processors too."
    yield Finding("redis-threshold", Severity.LOW, setup.where, says, "", remedy, edits)


def unless(workload: Workload) -> str:
    """Returns a clause with the files that may say otherwise, because they were named and not given; "" when none."""
    return f", unless {' or '.join(workload.missing)} says otherwise" if workload.missing else ""


def _odd(setup: Setup, setting: Setting) -> Finding:
    says = f"{setting.name} is not a number, so n8n warns and ignores it."
    remedy = "Write milliseconds as digits." if setting.name in _MILLISECONDS else "Write digits."
    return Finding("no-number", Severity.MEDIUM, setup.where, says, _shown(setting), remedy, removed(setting))


_MILLISECONDS = frozenset({variables.LOCK, variables.RENEW, variables.STALLED_INTERVAL})


def _shown(setting: Setting) -> str:
    return f"{setting.name}={setting.value}" if _HARMLESS.fullmatch(setting.value) else ""


def _alias(setup: Setup, old: Setting, new: Setting | None) -> Finding:
    if new is None:
        says = f"{old.name} is the old name of {variables.SHUTDOWN}."
        remedy = f"Write {variables.SHUTDOWN}."
        edits = written(old.renames, variables.SHUTDOWN)
        return Finding("old-name", Severity.LOW, setup.where, says, remedy=remedy, edits=edits)
    severity = Severity.LOW if old.value == new.value else Severity.MEDIUM
    says = f"{old.name} overrides {new.name}: n8n waits {spoken(setup.timing.shutdown or 0)}."
    remedy = f"Remove {old.name}."
    return Finding("overriding-name", severity, setup.where, says, remedy=remedy, edits=removed(old))
