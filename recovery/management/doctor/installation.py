"""Checks the installation: settings, data directory, private files, database."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.core import checks
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from recovery.config.schema import SECRETS
from recovery.management.doctor.findings import DoctorFinding, good, warning, wrong
from recovery.processes.private_files import open_to_others

SETTINGS, DIRECTORY, FILES, DATABASE = "settings", "data directory", "files", "database"
_NAMED = 20  # files in one line that is to be copied
# The configuration has a finding of its own.
_CONFIGURATION = "unstall.E002"


def _refusals() -> Iterator[checks.CheckMessage]:
    return (found for found in checks.run_checks(tags=["unstall"]) if found.id != _CONFIGURATION)


def variables() -> Iterator[DoctorFinding]:
    """Checks the environment variables of the web process, the secret key among them."""
    clean = True
    for found in _refusals():
        clean = False
        tell = wrong if found.is_serious() else warning
        yield tell(SETTINGS, str(found.msg), str(found.hint or ""))
    if clean:
        yield good(SETTINGS, "All variables are valid, and a secret key is set.")


def data_directory() -> Iterator[DoctorFinding]:
    """Checks the data directory by writing, because rights, a read-only mount and a full disk all look alike."""
    directory = Path(settings.DATA_DIR)
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=directory) as probe:
            probe.write(b"probe")
            probe.flush()
    except OSError as error:
        remedy = "Set UNSTALL_DATA_DIR to a directory that belongs to the user who runs this."
        yield wrong(DIRECTORY, f"{directory} cannot be written: {error.strerror}.", remedy)
        return
    yield good(DIRECTORY, f"{directory} can be written.")


def private_files() -> Iterator[DoctorFinding]:
    """Finds data and files of secrets that other users of this machine may read."""
    files = [Path(path) for name in SECRETS if (path := os.environ.get(f"{name}_FILE"))]
    if connection.vendor == "sqlite":
        database = str(connection.settings_dict["NAME"])
        files += [Path(f"{database}{suffix}") for suffix in ("", "-wal", "-shm")]
    found = list(dict.fromkeys(open_to_others([Path(settings.DATA_DIR), *files])))
    if not found:
        yield good(FILES, "Data and secrets are readable only by our own user and its group.")
        return
    more = f" and {len(found) - 1:,} more" if len(found) > 1 else ""
    named = " ".join(shlex.quote(str(path)) for path in found[:_NAMED])
    says = f"Every user of this machine can read {found[0]}{more}."
    yield warning(FILES, says, f"chmod o= {named}{' …' if len(found) > _NAMED else ''}")


def database() -> Iterator[DoctorFinding]:
    name = f"{DATABASE} ({connection.vendor})"
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        reason = " ".join(str(error).split())
        yield wrong(name, f"It does not answer: {reason}", "Check DATABASE_URL, and whether the server runs.")
        return
    if missing:
        yield wrong(
            name, f"Its tables are not up to date: {len(missing)} migrations are missing.", "Run `manage.py migrate`."
        )
    else:
        yield good(name, "It answers, and its tables are up to date.")
