"""Many rows are inserted by statements that a server has whole before it begins."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from recovery.actions.audit import audit_log
from recovery.models import AuditJob
from recovery.stores.sql import bulk_insert
from recovery.stores.sql.bulk_insert import insert_rows
from tests.support.acting import ADMIN

pytestmark = pytest.mark.django_db
COLUMNS = ("entry_id", "deployment", "base", "job", "outcome")


@pytest.fixture(params=["sqlite", "postgresql"])
def statements(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Which statements are sent, and whether as one of many. SQLite takes those that are written for PostgreSQL."""
    monkeypatch.setattr(connection, "vendor", request.param)
    sent: list[tuple[str, bool]] = []

    def note(execute: Any, sql: str, parameters: Any, many: bool, context: Any) -> Any:
        sent.append((sql, many))
        return execute(sql, parameters, many, context)

    with connection.execute_wrapper(note):
        yield sent


def test_every_row_is_inserted_and_none_by_a_pipeline_of_postgresql(
    statements: list[tuple[str, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_insert, "PARAMETERS", 50)
    entry = audit_log.note(ADMIN, "test")
    rows = [(entry, "main", "bull:mail", f"job-{number}", "") for number in range(25)]
    insert_rows(AuditJob, COLUMNS, rows)
    inserts = [many for sql, many in statements if sql.startswith("INSERT") and "auditjob" in sql]
    assert inserts == ([True] if connection.vendor == "sqlite" else [False, False, False])
    assert sorted(AuditJob.objects.values_list("job", flat=True)) == sorted(f"job-{number}" for number in range(25))
