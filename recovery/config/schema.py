"""All settings as data: the keys that the readers accept and that docs/configuration.md has to explain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Kind(StrEnum):
    """Type of a setting's value, in the words of the error message."""

    TEXT = "a string in quotes"
    NUMBER = "a number"
    FLAG = "true or false"
    NAMES = 'a list of strings, like ["a", "b"]'
    VALUES = 'a string, an integer, or a list of these, like ["a", "b"] or [0]'
    FILE = "the path of a file that can be read"
    TABLE = "a table"
    TABLES = "a list of tables, each beginning with [[name]]"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the TOML file. `low` and `high` bound numbers."""

    name: str
    kind: Kind = Kind.TEXT
    default: str | float | bool | tuple[str, ...] = ""
    low: float = 0.0
    high: float = 0.0


# A store that needs longer than ten seconds for a read is down for all that an operator cares;
# below 50 ms a garbage collection on either side would look like an outage.
_TIMEOUT = Key("timeout", Kind.NUMBER, 0.5, low=0.05, high=10.0)

_STORE = (
    Key("url"),
    Key("url_file", Kind.FILE),
    Key("username"),
    Key("password"),
    Key("password_file", Kind.FILE),
    _TIMEOUT,
    Key("tls_ca", Kind.FILE),
    Key("tls_certificate", Kind.FILE),
    Key("tls_key", Kind.FILE),
    Key("tls_verify", Kind.FLAG, default=True),
)

DEPLOYMENT = (
    Key("name"),
    Key("label"),
    *_STORE,
    Key("sentinel_username"),
    Key("sentinel_password"),
    Key("sentinel_password_file", Kind.FILE),
    Key("queues", Kind.NAMES, ()),
    Key("prefixes", Kind.NAMES, ()),
    Key("read_only", Kind.FLAG, default=False),
)
STATE = _STORE
INTERVALS = (
    # Faster than twice a second is not readable; slower than a minute it is no live view any more.
    Key("collect", Kind.NUMBER, 2.0, low=0.5, high=60.0),
    Key("discover", Kind.NUMBER, 60.0, low=5.0, high=3600.0),
    # An orphan is to be seen within seconds; a look costs a command an active job.
    Key("orphans", Kind.NUMBER, 5.0, low=1.0, high=300.0),
    # Each look reads all executions that n8n has not ended; it waits for most of what is wrong by itself for longer.
    Key("n8n", Kind.NUMBER, 30.0, low=5.0, high=3600.0),
    # These look deep, or act on many: oftener than every few seconds they would meet what they just did themselves.
    Key("stale_check", Kind.NUMBER, 900.0, low=5.0, high=86_400.0),
    Key("auto_retry", Kind.NUMBER, 1800.0, low=5.0, high=86_400.0),
    Key("startup_sweep", Kind.NUMBER, 60.0, low=5.0, high=86_400.0),
    Key("prune", Kind.NUMBER, 3600.0, low=60.0, high=86_400.0),
)
# Half a second is less than any stalled check's interval; a limit of more than a week is none.
_STALLED = Key("stalled_interval", Kind.NUMBER, 30.0, low=0.5, high=3600.0)
_OVERDUE = Key("overdue_after", Kind.NUMBER, 0.0, low=0.0, high=604_800.0)
# Longer than anything that a library itself would wait; a day is no check any more.
_STALE = Key("stale_after", Kind.NUMBER, 900.0, low=1.0, high=86_400.0)
THRESHOLDS = (_STALLED, _OVERDUE, _STALE)
# Here 0 means: as in [thresholds].
QUEUE = (
    Key("name"),
    Key("stalled_interval", Kind.NUMBER, 0.0, low=0.0, high=_STALLED.high),
    _OVERDUE,
    Key("schema", Kind.FILE),
)
HOOK = (
    Key("name"),
    Key("queue"),
    Key("on", Kind.NAMES, ("recovered",)),
    Key("call"),
    Key("database"),
    Key("table"),
    Key("id"),
    Key("path"),
    Key("stage"),
    Key("from", Kind.NAMES, ()),
    Key("to"),
    Key("failed"),
    Key("choose", Kind.TABLES),
)
DATABASE = (
    Key("name"),
    Key("label"),
    Key("url"),
    Key("url_file", Kind.FILE),
    # A statement that takes longer is ended: a page waits for it, and the application's own work beside it.
    Key("timeout", Kind.NUMBER, 2.0, low=0.1, high=60.0),
    Key("read_only", Kind.FLAG, default=False),
)
_WEEK = 604_800.0
TABLE = (
    Key("database"),
    Key("table"),
    Key("name"),
    Key("id", default="id"),
    Key("state", default="state"),
    Key("queued", Kind.VALUES, ("queued",)),
    Key("running", Kind.VALUES, ("running",)),
    Key("done", Kind.VALUES, ("done",)),
    Key("failed", Kind.VALUES, ("failed",)),
    Key("name_column"),
    Key("attempts"),
    Key("max_attempts"),
    # A row that crashes its workers is given to no more than so many.
    Key("attempts_limit", Kind.NUMBER, 3.0, low=1.0, high=1000.0),
    Key("last_error"),
    Key("queued_at"),
    Key("started_at"),
    Key("finished_at"),
    Key("lease_until"),
    # Clocks differ, and a renewal may be on its way.
    Key("lease_grace", Kind.NUMBER, 5.0, low=0.0, high=3600.0),
    Key("heartbeat"),
    Key("heartbeat_limit", Kind.NUMBER, 60.0, low=1.0, high=_WEEK),
    Key("age_limit", Kind.NUMBER, 0.0, low=0.0, high=_WEEK),
    Key("owner"),
    Key("data"),
    Key("timezone", default="UTC"),
)
CHOICE = (Key("column"), Key("is"), Key("equals"), Key("to"))
N8N = (
    Key("name", default="n8n"),
    Key("queue"),
    Key("database"),
    Key("schema", default="public"),
    Key("table_prefix"),
    Key("editor"),
    Key("api"),
    Key("api_key"),
    Key("api_key_file", Kind.FILE),
    Key("tls_ca", Kind.FILE),
    Key("redis_prefix", default="n8n"),
    Key("copies", Kind.TABLE),
    Key("rescue", Kind.TABLES),
)
N8N_COPIES = (
    Key("keep", Kind.FLAG, default=True),
    # A worker holds an execution in memory many times over: one of more than 64 MB is not handed to it as JSON.
    Key("megabytes_each", Kind.NUMBER, 4.0, low=0.1, high=64.0),
    Key("megabytes", Kind.NUMBER, 256.0, low=1.0, high=16_384.0),
    Key("executions", Kind.NUMBER, 1000.0, low=1.0, high=20_000.0),
    # Longer than n8n keeps executions itself (EXECUTIONS_DATA_MAX_AGE, 14 days) there is nothing to restore them to.
    Key("days", Kind.NUMBER, 7.0, low=0.1, high=30.0),
)
N8N_RESCUE = (Key("workflow"), Key("idempotent"), Key("automatic", Kind.FLAG, default=False))
_ENDPOINT = (Key("token_file", Kind.FILE), Key("username"), Key("password_file", Kind.FILE), Key("tls_ca", Kind.FILE))
NODE = (Key("id"), Key("exporter"), Key("instance"), Key("disk", default="/"), *_ENDPOINT)
PROMETHEUS = (Key("url"), Key("label", default="instance"), Key("match"), Key("disk", default="/"), *_ENDPOINT)
LOGS = (
    Key("name"),
    Key("label"),
    Key("kind"),
    # loki
    Key("url"),
    *_ENDPOINT,
    Key("tenant"),
    Key("match"),
    # Behind a slow object store a search takes seconds; after half a minute a reader has given up.
    Key("timeout", Kind.NUMBER, 5.0, low=0.5, high=30.0),
    Key("server_label"),
    # files
    Key("roots", Kind.NAMES, ()),
    Key("patterns", Kind.NAMES, ("*.log",)),
    Key("server"),
)
# Nothing is sent sooner than a scanner run; a problem that can wait for a week needs no alert.
ALERTS = (
    Key("kinds", Kind.NAMES, ()),
    Key("after", Kind.NUMBER, 30.0, low=0.0, high=86_400.0),
    Key("gate_after", Kind.NUMBER, 600.0, low=0.0, high=86_400.0),
    Key("calm", Kind.NUMBER, 60.0, low=0.0, high=3600.0),
    Key("again", Kind.NUMBER, 14_400.0, low=0.0, high=_WEEK),
    Key("most", Kind.NUMBER, 10.0, low=1.0, high=1000.0),
    Key("webhooks", Kind.TABLES),
    Key("email", Kind.TABLE),
)
WEBHOOK = (
    Key("name"),
    Key("url"),
    Key("url_file", Kind.FILE),
    Key("format", default="json"),
    Key("secret"),
    Key("secret_file", Kind.FILE),
    Key("header", default="X-Unstall-Signature"),
    Key("tls_ca", Kind.FILE),
    Key("kinds", Kind.NAMES, ()),
)
EMAIL = (
    Key("host"),
    Key("port", Kind.NUMBER, 0.0, low=0.0, high=65_535.0),
    Key("encryption", default="starttls"),
    Key("username"),
    Key("password"),
    Key("password_file", Kind.FILE),
    Key("from"),
    Key("to", Kind.NAMES, ()),
    Key("tls_ca", Kind.FILE),
    Key("kinds", Kind.NAMES, ()),
)
# Below 10 % nothing would ever start, and above 99 % the gate would never close.
_CLOSE = Key("close_at", Kind.NUMBER, 80.0, low=20.0, high=99.0)
_OPEN = Key("open_at", Kind.NUMBER, 70.0, low=10.0, high=89.0)
# Polls; after a minute of them the CPU has long shown what was started.
_SETTLE = Key("settle", Kind.NUMBER, 2.0, low=1.0, high=12.0)
GATE = (
    _CLOSE,
    _OPEN,
    _SETTLE,
    Key("without_sample", default="refuse"),
    Key("open_on_loopback", Kind.FLAG, default=False),
)
# Here 0 means: as in [gate].
SERVER = (Key("id"), Key("label"), *(replace(key, default=0.0, low=0.0) for key in (_CLOSE, _OPEN, _SETTLE)))
METRICS = (
    Key("open_on_loopback", Kind.FLAG, default=False),
    # Some 25 lines each: with 20,000 an answer has 40 MB, which no scraper reads in time.
    Key("queues", Kind.NUMBER, 2000.0, low=1.0, high=20_000.0),
)
IDEMPOTENCY = (
    # What is replayed after a year is no replay any more.
    Key("keep_days", Kind.NUMBER, 7.0, low=1.0, high=365.0),
    Key("keep_expired_days", Kind.NUMBER, 7.0, low=1.0, high=365.0),
    # Some 500 bytes each beside its result.
    Key("keys", Kind.NUMBER, 100_000.0, low=100.0, high=999_999.0),
    Key("megabytes", Kind.NUMBER, 256.0, low=1.0, high=65_536.0),
)
AUDIT = (
    # Oftener than every ten seconds it is no sample of the chain any more; a day is what an attacker has.
    Key("head_every", Kind.NUMBER, 600.0, low=10.0, high=86_400.0),
    Key("file"),
    Key("syslog"),
    Key("url"),
    Key("url_file", Kind.FILE),
    Key("secret"),
    Key("secret_file", Kind.FILE),
    Key("tls_ca", Kind.FILE),
)
REDACTION = (Key("hide", Kind.NAMES, ()), Key("keep", Kind.NAMES, ()), Key("show", Kind.TABLES))
SHOWN_VALUES = (Key("queues", Kind.NAMES, ("*",)), Key("paths", Kind.NAMES, ()))
# Where a policy counts; what it says is read by domain/policy_text.py.
POLICIES = (Key("queue"), Key("deployment"))
ROOT = (
    Key("environment"),
    Key("operators_may", Kind.NAMES, ("many", "pause")),
    Key("deployments", Kind.TABLES),
    Key("state", Kind.TABLE),
    Key("intervals", Kind.TABLE),
    Key("thresholds", Kind.TABLE),
    Key("queues", Kind.TABLES),
    Key("databases", Kind.TABLES),
    Key("tables", Kind.TABLES),
    Key("policy", Kind.TABLE),
    Key("policies", Kind.TABLES),
    Key("hooks", Kind.TABLES),
    Key("gate", Kind.TABLE),
    Key("servers", Kind.TABLES),
    Key("metrics", Kind.TABLE),
    Key("idempotency", Kind.TABLE),
    Key("redaction", Kind.TABLE),
    Key("alerts", Kind.TABLE),
    Key("audit", Kind.TABLE),
    Key("nodes", Kind.TABLES),
    Key("prometheus", Kind.TABLE),
    Key("logs", Kind.TABLES),
    Key("n8n", Kind.TABLES),
)
TABLES = {
    "": ROOT,
    "deployments": DEPLOYMENT,
    "state": STATE,
    "intervals": INTERVALS,
    "thresholds": THRESHOLDS,
    "queues": QUEUE,
    "databases": DATABASE,
    "tables": TABLE,
    "policies": POLICIES,
    "hooks": HOOK,
    "hooks.choose": CHOICE,
    "gate": GATE,
    "servers": SERVER,
    "metrics": METRICS,
    "idempotency": IDEMPOTENCY,
    "redaction": REDACTION,
    "redaction.show": SHOWN_VALUES,
    "alerts": ALERTS,
    "audit": AUDIT,
    "alerts.webhooks": WEBHOOK,
    "alerts.email": EMAIL,
    "nodes": NODE,
    "prometheus": PROMETHEUS,
    "logs": LOGS,
    "n8n": N8N,
    "n8n.copies": N8N_COPIES,
    "n8n.rescue": N8N_RESCUE,
}

# Variables that this package reads, then those of the web process and of the children of `up`.
# All are here, so that a typo in any of them is found.
VARIABLES = (
    "UNSTALL_REDIS_URL",
    "UNSTALL_READ_ONLY",
    "UNSTALL_STATE_URL",
    "UNSTALL_N8N_DATABASE_URL",
    "UNSTALL_CONFIG",
    "UNSTALL_ENVIRONMENT",
    "UNSTALL_OPERATORS_MAY",
    "UNSTALL_SECRET_KEY",
    "UNSTALL_SECRET_KEY_FALLBACKS",
    "UNSTALL_DATA_DIR",
    "UNSTALL_BIND",
    "UNSTALL_ALLOWED_HOSTS",
    "UNSTALL_TRUSTED_ORIGINS",
    "UNSTALL_TRUSTED_PROXIES",
    "UNSTALL_PUBLIC_URL",
    "UNSTALL_SESSION_DAYS",
    "UNSTALL_SESSION_IDLE_HOURS",
    "UNSTALL_STATIC_DIR",
    "UNSTALL_DEBUG",
    "UNSTALL_LOG_LEVEL",
    "UNSTALL_HEARTBEAT_PATH",
    "UNSTALL_SERVER_ID",
    "UNSTALL_WORKER_PATTERNS",
    "UNSTALL_DISK_PATH",
    "UNSTALL_LOG_FILES",
    "UNSTALL_LOG_DOCKER",
    "UNSTALL_LOG_JOURNAL",
    "UNSTALL_LOG_KEEP_MB",
    "UNSTALL_LOG_KEEP_HOURS",
    "DATABASE_URL",
)
# These may come from a file instead, whose path is in NAME_FILE.
SECRETS = (
    "UNSTALL_REDIS_URL",
    "UNSTALL_STATE_URL",
    "UNSTALL_N8N_DATABASE_URL",
    "UNSTALL_SECRET_KEY",
    "UNSTALL_SECRET_KEY_FALLBACKS",
    "DATABASE_URL",
)
