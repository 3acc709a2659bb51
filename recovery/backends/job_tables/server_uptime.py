"""Reads how long a database has been up: after a restart no worker had a chance to renew what it holds."""

from __future__ import annotations

from recovery.config import Engine
from recovery.stores.sql.sql_client import as_sql_client

_UPTIME = {
    Engine.POSTGRESQL: "SELECT extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())",
    Engine.MYSQL: "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'UPTIME'",
}
# MySQL 8 keeps it elsewhere than MariaDB.
_UPTIME_MYSQL = "SELECT variable_value FROM performance_schema.global_status WHERE variable_name = 'Uptime'"


def uptime(wire: object) -> int | None:
    """Returns the uptime in ms; None where there is no server. Raises StoreError: it does not answer."""
    with as_sql_client(wire).session() as session:
        if session.engine is Engine.SQLITE:
            session.all("SELECT 1")
            return None
        is_mysql = session.engine is Engine.MYSQL and not session.connection.mysql_is_mariadb
        replies = session.all(_UPTIME_MYSQL if is_mysql else _UPTIME[session.engine])
    return round(float(replies[0][0]) * 1000) if replies else None
