from __future__ import annotations

from dashboard.database_url import database_settings


def test_three_slashes_are_a_relative_path_and_four_an_absolute_one() -> None:
    assert database_settings("sqlite:///here.sqlite3")["NAME"] == "here.sqlite3"
    assert database_settings("sqlite:////var/lib/unstall.sqlite3")["NAME"] == "/var/lib/unstall.sqlite3"


def test_sqlite_begins_with_the_lock_and_keeps_a_journal_ahead() -> None:
    options = database_settings("sqlite:///x")["OPTIONS"]
    assert options["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in options["init_command"]
    assert options["timeout"] > 0


def test_postgres_is_read_with_escaped_parts_and_options() -> None:
    found = database_settings("postgres://un%40stall:p%2Fw@db.internal:5433/un%20stall?sslmode=require")
    assert found["ENGINE"] == "dashboard.postgres"
    assert (found["USER"], found["PASSWORD"]) == ("un@stall", "p/w")
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("db.internal", "5433", "un stall")
    assert found["OPTIONS"]["sslmode"] == "require"
    assert found["OPTIONS"]["connect_timeout"] < 5
