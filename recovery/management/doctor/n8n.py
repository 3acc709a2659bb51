"""Checks each n8n: whether its database answers, its tables are known and readable, and its API accepts the key."""

from __future__ import annotations

from collections.abc import Iterator

from recovery import shared_clock
from recovery.config import N8nInstallation
from recovery.domain.identifiers import printable
from recovery.domain.n8n.comparison import N8nRelease
from recovery.domain.n8n.instances import EMPTY, concerns, summary
from recovery.errors import DeploymentMissing, StoreError, Unsupported
from recovery.management.doctor.findings import DoctorFinding, good, silent, warning, wrong
from recovery.n8n import api_client, instance_store
from recovery.n8n.database import run_data, schema
from recovery.n8n.database.run_data import DataRights
from recovery.n8n.database.schema import N8nTables
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql.sql_client import SqlClient, as_sql_client

_READ_ONLY = "Its database is configured to be read only."
_WRITES = frozenset({"status", "stoppedAt", "waitTill"})


def n8n(registry: ConnectionRegistry) -> Iterator[DoctorFinding]:
    for one in registry.config.n8n:
        about = f"n8n {one.name}"
        if one.database:
            yield from _database(about, registry, one)
        else:
            yield warning(
                about, "It has no database, so only its jobs are visible.", "Write database = … (docs/n8n.md)."
            )
        yield from _processes(about, registry, one)
        if one.api_key:
            yield _key(about, one)
        elif one.editor:
            yield good(about, "There is no API key: retry failed executions in the n8n editor, not from here.")


def _key(about: str, one: N8nInstallation) -> DoctorFinding:
    found = api_client.check_key(one)
    if not found.trouble:
        return good(about, f"{one.api} accepts the API key for a retry ({api_client.SCOPE}).")
    tell = wrong if found.is_wrong else warning
    return tell(about, f"{one.api}: {found.trouble}", "Until this is fixed, no execution can be retried from here.")


def _processes(about: str, registry: ConnectionRegistry, one: N8nInstallation) -> Iterator[DoctorFinding]:
    """Checks n8n's processes by its registry; an n8n before 2.20 has none and gets no finding."""
    now = shared_clock.now()
    try:
        found = instance_store.look(registry, one, EMPTY, now)
    except DeploymentMissing as error:
        yield warning(about, str(error), "Name the deployment with its queue in [[n8n]] (docs/n8n.md).")
        return
    if found.here:
        yield good(about, f"{printable(summary(found.instances))}.")
    for concern in concerns(found, now):
        yield warning(
            about, printable(concern), "Check n8n's processes, and what our user may read (docs/redis-acl.md)."
        )


def _database(about: str, registry: ConnectionRegistry, one: N8nInstallation) -> Iterator[DoctorFinding]:
    wire = as_sql_client(registry.wire(one.database))
    try:
        with wire.session() as session:
            found = schema.look(session, one)
        rights = run_data.rights(wire, one)
    except Unsupported as error:
        yield wrong(about, f"Its executions cannot be read: {error}", "Check [[n8n]], and what our user may read.")
        return
    except StoreError as error:
        yield silent(about, error)
        return
    writes = "marking a row is possible" if found.writable >= _WRITES else "our user may only read, which is sufficient"
    yield good(about, f"Its tables are those of n8n {found.release.value}; {writes}.")
    if found.read_only:
        yield warning(about, found.read_only, "Check for a newer Unstall.")
    if found.release is N8nRelease.TWO:
        yield _rescue(about, one, wire, found, rights)


def _rescue(about: str, one: N8nInstallation, wire: SqlClient, found: N8nTables, rights: DataRights) -> DoctorFinding:
    """Checks whether lost executions could be rescued."""
    if one.copies.is_on and not rights.may_read:
        return warning(
            about,
            "Executions at risk are not copied: our user may not read their data.",
            "GRANT SELECT on execution_data (docs/n8n.md), or turn copies off ([n8n.copies] keep = false).",
        )
    if why := api_client.lacks(one) or (_READ_ONLY if wire.database.read_only else ""):
        return good(about, f"Lost executions cannot be rescued from here. {why}")
    if why := run_data.refusal_by_rights(wire, found, rights):
        return warning(about, f"Lost executions cannot be rescued. {why}", "GRANT what docs/n8n.md lists for repairs.")
    return good(about, "Executions whose worker is lost can be rescued.")
