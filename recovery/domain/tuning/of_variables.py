"""Findings about n8n's variables: those that this version does not read, those it reads otherwise than one thinks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from recovery.domain.secrets import is_secret_key
from recovery.domain.tuning import variables
from recovery.domain.tuning.findings import Finding, Severity, removed, spoken, written
from recovery.domain.tuning.setups import Setup
from recovery.domain.tuning.versions import Version, text
from recovery.domain.tuning.workloads import Setting

_HARMLESS = re.compile(r"[\d_.,]{1,12} ?[A-Za-z]{0,3}")  # `30s`, `60_000`: whatever else stands there is not shown


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
    if variables.OLD_SHUTDOWN in settings and variables.has_alias(setup.version):
        yield _alias(setup, settings[variables.OLD_SHUTDOWN], settings.get(variables.SHUTDOWN))


def _ignored(setup: Setup, version: Version, setting: Setting, why: str, instead: str) -> Finding:
    """It is taken out and not renamed: nobody has ever seen what its value does."""
    says = f"{setting.name} does nothing in n8n {text(version)}: {why}."
    remedy = f"Remove it; to set what it means, write {instead}." if instead else "Remove it."
    if setting.name == variables.MAX_STALLED and not instead:
        remedy += " An execution whose worker dies is failed now; run it again from n8n, or on an error workflow."
    # A line of a secret is not shown, whatever stands there.
    edits = () if is_secret_key(setting.name) else removed(setting)
    return Finding("ignored-variable", Severity.MEDIUM, setup.where, says, remedy=remedy, edits=edits)


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
