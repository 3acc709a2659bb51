"""Findings about n8n's variables: those that this version does not read, and those that it reads in another way."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recovery.domain.n8n.versions import Version, text
from recovery.domain.redaction.secret_finder import is_secret_key
from recovery.domain.tuning import n8n_variables
from recovery.domain.tuning.findings import (
    Severity,
    TuningFinding,
    add_lines,
    number_text,
    remove_lines,
    replace_value,
    seconds_text,
)
from recovery.domain.tuning.worker_setup import WorkerSetup, number
from recovery.domain.tuning.workloads import Workload, WorkloadSetting

_HARMLESS = re.compile(r"[\d_.,]{1,12} ?[A-Za-z]{0,3}")  # `30s`, `60_000`: whatever else stands there is not shown

_REFUSED = "own"
_MYSQL = frozenset({"mysqldb", "mariadb"})
_WITHOUT_MYSQL: Version = (2, 0, 0)
_REDIS_BACK = 30.0  # seconds in which a Redis that restarts, or fails over, is back as a rule
_REDIS_STAYS = 60.0  # what is proposed
_MS = 1000


def check_variables(setup: WorkerSetup) -> Iterator[TuningFinding]:
    if setup.workload is None or setup.version is None:
        return
    settings = setup.workload.settings
    for setting in settings.values():
        said = n8n_variables.ignored(setting.name, setup.version)
        if said:
            yield _ignored(setup, setup.version, setting, *said)
    for setting in setup.odd:
        yield _odd(setup, setting)
    yield from _deprecated(setup, setup.version)
    yield from _database(setup, setup.version)
    yield from _redis_away(setup)
    if n8n_variables.OLD_SHUTDOWN in settings and n8n_variables.has_alias(setup.version):
        yield _alias(setup, settings[n8n_variables.OLD_SHUTDOWN], settings.get(n8n_variables.SHUTDOWN))


def _ignored(setup: WorkerSetup, version: Version, setting: WorkloadSetting, why: str, instead: str) -> TuningFinding:
    """Reports a variable that does nothing. It is removed and not renamed: its value has never been in effect."""
    says = f"{setting.name} does nothing in n8n {text(version)}: {why}."
    remedy = f"Remove it; to set what it means, write {instead}." if instead else "Remove it."
    if setting.name == n8n_variables.MAX_STALLED and not instead:
        remedy += " An execution whose worker dies is failed now; run it again from n8n, or on an error workflow."
    # A line with a secret is never shown, whatever its value is.
    edits = () if is_secret_key(setting.name) else remove_lines(setting)
    return TuningFinding("ignored-variable", Severity.MEDIUM, setup.where, says, remedy=remedy, edits=edits)


def _deprecated(setup: WorkerSetup, version: Version) -> Iterator[TuningFinding]:
    settings = setup.workload.settings if setup.workload else {}
    for name, since in n8n_variables.DEPRECATED.items():
        setting = settings.get(name)
        if setting is None or version < since:
            continue
        if name == n8n_variables.PROCESS and setting.value == _REFUSED:
            says = f"n8n does not start with {name}={_REFUSED}."
            yield TuningFinding(
                "deprecated-variable", Severity.HIGH, setup.where, says, "", "Remove it.", remove_lines(setting)
            )
        else:
            says = f"n8n {text(version)} calls {name} deprecated: it does nothing any more."
            yield TuningFinding(
                "deprecated-variable", Severity.LOW, setup.where, says, "", "Remove it.", remove_lines(setting)
            )


def _database(setup: WorkerSetup, version: Version) -> Iterator[TuningFinding]:
    """Finds a database that queue mode, or this version, does not support."""
    setting = setup.workload.settings.get(n8n_variables.DATABASE) if setup.workload else None
    value = setting.value if setting else ""
    remedy = f"Migrate to PostgreSQL, and set {n8n_variables.DATABASE}=postgresdb."
    if value == "sqlite":
        says = "n8n does not support SQLite in queue mode: its processes do not share one file."
        yield TuningFinding("unsupported-database", Severity.MEDIUM, setup.where, says, "", remedy)
    elif value in _MYSQL and version >= _WITHOUT_MYSQL:
        says = "n8n 2 supports neither MySQL nor MariaDB."
        yield TuningFinding("unsupported-database", Severity.HIGH, setup.where, says, "", remedy)
    elif value in _MYSQL:
        says = "MySQL and MariaDB are deprecated, and n8n 2 does not support them."
        yield TuningFinding("unsupported-database", Severity.LOW, setup.where, says, "", remedy)


def _redis_away(setup: WorkerSetup) -> Iterator[TuningFinding]:
    """Finds a process that exits before a Redis that restarts, or fails over, is back."""
    workload = setup.workload
    setting = workload.settings.get(n8n_variables.THRESHOLD) if workload else None
    if workload is None or (setting and setting.is_hidden):
        return
    given = number(setting.value) if setting else None
    away = n8n_variables.REDIS_AWAY if given is None else given / _MS
    if away >= _REDIS_BACK:
        return
    says = (
        f"Every n8n process exits when Redis is away for {seconds_text(away)}: a restart or a failover of Redis kills "
        "the "
        f"workers with what they run{missing_sources_clause(workload)}."
    )
    value = number_text(_REDIS_STAYS * _MS)
    edits = (
        replace_value(setting.place, value)
        if setting
        else add_lines(workload.variables, (n8n_variables.THRESHOLD, value))
    )
    remedy = f"{n8n_variables.THRESHOLD} = {value}, on mains and webhook processors too."
    yield TuningFinding("redis-threshold", Severity.LOW, setup.where, says, "", remedy, edits)


def missing_sources_clause(workload: Workload) -> str:
    """Returns a clause with the files that may say otherwise, because they were named and not given; "" when none."""
    return f", unless {' or '.join(workload.missing)} says otherwise" if workload.missing else ""


def _odd(setup: WorkerSetup, setting: WorkloadSetting) -> TuningFinding:
    says = f"{setting.name} is not a number, so n8n warns and ignores it."
    remedy = "Write milliseconds as digits." if setting.name in _MILLISECONDS else "Write digits."
    return TuningFinding(
        "no-number", Severity.MEDIUM, setup.where, says, _shown(setting), remedy, remove_lines(setting)
    )


_MILLISECONDS = frozenset({n8n_variables.LOCK, n8n_variables.RENEW, n8n_variables.STALLED_INTERVAL})


def _shown(setting: WorkloadSetting) -> str:
    return f"{setting.name}={setting.value}" if _HARMLESS.fullmatch(setting.value) else ""


def _alias(setup: WorkerSetup, old: WorkloadSetting, new: WorkloadSetting | None) -> TuningFinding:
    if new is None:
        says = f"{old.name} is the old name of {n8n_variables.SHUTDOWN}."
        remedy = f"Write {n8n_variables.SHUTDOWN}."
        edits = replace_value(old.renames, n8n_variables.SHUTDOWN)
        return TuningFinding("old-name", Severity.LOW, setup.where, says, remedy=remedy, edits=edits)
    severity = Severity.LOW if old.value == new.value else Severity.MEDIUM
    says = f"{old.name} overrides {new.name}: n8n waits {seconds_text(setup.timing.shutdown or 0)}."
    remedy = f"Remove {old.name}."
    return TuningFinding("overriding-name", severity, setup.where, says, remedy=remedy, edits=remove_lines(old))
