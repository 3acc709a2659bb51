"""What is at home: the web's settings, the data directory, the database."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from stat import S_IRWXO

from django.conf import settings
from django.core import checks
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from recovery.management.checkup.findings import Finding, good, warning, wrong

SETTINGS, DIRECTORY, DATABASE = "settings", "data directory", "database"
# The configuration is told by its own finding, with its own words.
_CONFIGURATION = "unstall.E002"


def _refusals() -> Iterator[checks.CheckMessage]:
    return (found for found in checks.run_checks(tags=["unstall"]) if found.id != _CONFIGURATION)


def variables() -> Iterator[Finding]:
    """What the web refuses in its variables, the secret key among them."""
    clean = True
    for found in _refusals():
        clean = False
        tell = wrong if found.is_serious() else warning
        yield tell(SETTINGS, str(found.msg), str(found.hint or ""))
    if clean:
        yield good(SETTINGS, "Every variable can be used, and there is a secret key.")


def data_directory() -> Iterator[Finding]:
    """Tried by writing, because rights, a read-only mount and a full disk all look alike from outside."""
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
    if directory.stat().st_mode & S_IRWXO:
        yield warning(DIRECTORY, f"{directory} is open to every user of this machine.", f"chmod o= {directory}")
    else:
        yield good(DIRECTORY, f"{directory} can be written.")


def database() -> Iterator[Finding]:
    name = f"{DATABASE} ({connection.vendor})"
    try:
        executor = MigrationExecutor(connection)
        missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError as error:
        reason = " ".join(str(error).split())
        yield wrong(name, f"It does not answer: {reason}", "Look at DATABASE_URL, and whether the server runs.")
        return
    if missing:
        yield wrong(
            name, f"Its tables are not up to date: {len(missing)} steps are missing.", "Run `manage.py migrate`."
        )
    else:
        yield good(name, "It answers, and its tables are up to date.")
