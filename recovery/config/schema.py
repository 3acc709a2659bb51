"""All settings as data: the keys that the readers accept and that docs/configuration.md has to explain."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class SettingKind(StrEnum):
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
class ConfigKey:
    """A key of the TOML file. `low` and `high` bound numbers."""

    name: str
    kind: SettingKind = SettingKind.TEXT
    default: str | float | bool | tuple[str, ...] = ""
    low: float = 0.0
    high: float = 0.0


# A store that needs longer than ten seconds for a read is down for all that an operator cares;
# below 50 ms a garbage collection on either side would look like an outage.
_TIMEOUT = ConfigKey("timeout", SettingKind.NUMBER, 0.5, low=0.05, high=10.0)

_STORE = (
    ConfigKey("url"),
    ConfigKey("url_file", SettingKind.FILE),
    ConfigKey("username"),
    ConfigKey("password"),
    ConfigKey("password_file", SettingKind.FILE),
    _TIMEOUT,
    ConfigKey("tls_ca", SettingKind.FILE),
    ConfigKey("tls_certificate", SettingKind.FILE),
    ConfigKey("tls_key", SettingKind.FILE),
    ConfigKey("tls_verify", SettingKind.FLAG, default=True),
)

DEPLOYMENT = (
    ConfigKey("name"),
    ConfigKey("label"),
    *_STORE,
    ConfigKey("sentinel_username"),
    ConfigKey("sentinel_password"),
    ConfigKey("sentinel_password_file", SettingKind.FILE),
    ConfigKey("queues", SettingKind.NAMES, ()),
    ConfigKey("prefixes", SettingKind.NAMES, ()),
    ConfigKey("read_only", SettingKind.FLAG, default=False),
)
STATE = _STORE
INTERVALS = (
    # Faster than twice a second is not readable; slower than a minute it is no live view any more.
    ConfigKey("collect", SettingKind.NUMBER, 2.0, low=0.5, high=60.0),
    ConfigKey("discover", SettingKind.NUMBER, 60.0, low=5.0, high=3600.0),
    # An orphan is to be seen within seconds; a look costs a command an active job.
    ConfigKey("orphans", SettingKind.NUMBER, 5.0, low=1.0, high=300.0),
    # Each look reads all executions that n8n has not ended; it waits for most of what is wrong by itself for longer.
    ConfigKey("n8n", SettingKind.NUMBER, 30.0, low=5.0, high=3600.0),
    # These look deep, or act on many: oftener than every few seconds they would meet what they just did themselves.
    ConfigKey("stale_check", SettingKind.NUMBER, 900.0, low=5.0, high=86_400.0),
    ConfigKey("auto_retry", SettingKind.NUMBER, 1800.0, low=5.0, high=86_400.0),
    ConfigKey("startup_sweep", SettingKind.NUMBER, 60.0, low=5.0, high=86_400.0),
    ConfigKey("prune", SettingKind.NUMBER, 3600.0, low=60.0, high=86_400.0),
)
# Half a second is less than any stalled check's interval; a limit of more than a week is none.
_STALLED = ConfigKey("stalled_interval", SettingKind.NUMBER, 30.0, low=0.5, high=3600.0)
_OVERDUE = ConfigKey("overdue_after", SettingKind.NUMBER, 0.0, low=0.0, high=604_800.0)
# Longer than anything that a library itself would wait; a day is no check any more.
_STALE = ConfigKey("stale_after", SettingKind.NUMBER, 900.0, low=1.0, high=86_400.0)
THRESHOLDS = (_STALLED, _OVERDUE, _STALE)
# Here 0 means: as in [thresholds].
QUEUE = (
    ConfigKey("name"),
    ConfigKey("stalled_interval", SettingKind.NUMBER, 0.0, low=0.0, high=_STALLED.high),
    _OVERDUE,
    ConfigKey("schema", SettingKind.FILE),
)
HOOK = (
    ConfigKey("name"),
    ConfigKey("queue"),
    ConfigKey("on", SettingKind.NAMES, ("recovered",)),
    ConfigKey("call"),
    ConfigKey("database"),
    ConfigKey("table"),
    ConfigKey("id"),
    ConfigKey("path"),
    ConfigKey("stage"),
    ConfigKey("from", SettingKind.NAMES, ()),
    ConfigKey("to"),
    ConfigKey("failed"),
    ConfigKey("choose", SettingKind.TABLES),
)
DATABASE = (
    ConfigKey("name"),
    ConfigKey("label"),
    ConfigKey("url"),
    ConfigKey("url_file", SettingKind.FILE),
    # A statement that takes longer is ended: a page waits for it, and the application's own work beside it.
    ConfigKey("timeout", SettingKind.NUMBER, 2.0, low=0.1, high=60.0),
    ConfigKey("read_only", SettingKind.FLAG, default=False),
)
_WEEK = 604_800.0
TABLE = (
    ConfigKey("database"),
    ConfigKey("table"),
    ConfigKey("name"),
    ConfigKey("id", default="id"),
    ConfigKey("state", default="state"),
    ConfigKey("queued", SettingKind.VALUES, ("queued",)),
    ConfigKey("running", SettingKind.VALUES, ("running",)),
    ConfigKey("done", SettingKind.VALUES, ("done",)),
    ConfigKey("failed", SettingKind.VALUES, ("failed",)),
    ConfigKey("name_column"),
    ConfigKey("attempts"),
    ConfigKey("max_attempts"),
    # A row that crashes its workers is given to no more than so many.
    ConfigKey("attempts_limit", SettingKind.NUMBER, 3.0, low=1.0, high=1000.0),
    ConfigKey("last_error"),
    ConfigKey("queued_at"),
    ConfigKey("started_at"),
    ConfigKey("finished_at"),
    ConfigKey("lease_until"),
    # Clocks differ, and a renewal may be on its way.
    ConfigKey("lease_grace", SettingKind.NUMBER, 5.0, low=0.0, high=3600.0),
    ConfigKey("heartbeat"),
    ConfigKey("heartbeat_limit", SettingKind.NUMBER, 60.0, low=1.0, high=_WEEK),
    ConfigKey("age_limit", SettingKind.NUMBER, 0.0, low=0.0, high=_WEEK),
    ConfigKey("owner"),
    ConfigKey("data"),
    ConfigKey("timezone", default="UTC"),
)
CHOICE = (ConfigKey("column"), ConfigKey("is"), ConfigKey("equals"), ConfigKey("to"))
N8N = (
    ConfigKey("name", default="n8n"),
    ConfigKey("queue"),
    ConfigKey("database"),
    ConfigKey("schema", default="public"),
    ConfigKey("table_prefix"),
    ConfigKey("editor"),
    ConfigKey("api"),
    ConfigKey("api_key"),
    ConfigKey("api_key_file", SettingKind.FILE),
    ConfigKey("tls_ca", SettingKind.FILE),
    ConfigKey("redis_prefix", default="n8n"),
    ConfigKey("copies", SettingKind.TABLE),
    ConfigKey("rescue", SettingKind.TABLES),
)
N8N_COPIES = (
    ConfigKey("keep", SettingKind.FLAG, default=True),
    # A worker holds an execution in memory many times over: one of more than 64 MB is not handed to it as JSON.
    ConfigKey("megabytes_each", SettingKind.NUMBER, 4.0, low=0.1, high=64.0),
    ConfigKey("megabytes", SettingKind.NUMBER, 256.0, low=1.0, high=16_384.0),
    ConfigKey("executions", SettingKind.NUMBER, 1000.0, low=1.0, high=20_000.0),
    # Longer than n8n keeps executions itself (EXECUTIONS_DATA_MAX_AGE, 14 days) there is nothing to restore them to.
    ConfigKey("days", SettingKind.NUMBER, 7.0, low=0.1, high=30.0),
)
N8N_RESCUE = (ConfigKey("workflow"), ConfigKey("idempotent"), ConfigKey("automatic", SettingKind.FLAG, default=False))
_ENDPOINT = (
    ConfigKey("token_file", SettingKind.FILE),
    ConfigKey("username"),
    ConfigKey("password_file", SettingKind.FILE),
    ConfigKey("tls_ca", SettingKind.FILE),
)
NODE = (ConfigKey("id"), ConfigKey("exporter"), ConfigKey("instance"), ConfigKey("disk", default="/"), *_ENDPOINT)
PROMETHEUS = (
    ConfigKey("url"),
    ConfigKey("label", default="instance"),
    ConfigKey("match"),
    ConfigKey("disk", default="/"),
    *_ENDPOINT,
)
LOGS = (
    ConfigKey("name"),
    ConfigKey("label"),
    ConfigKey("kind"),
    # loki
    ConfigKey("url"),
    *_ENDPOINT,
    ConfigKey("tenant"),
    ConfigKey("match"),
    # Behind a slow object store a search takes seconds; after half a minute a reader has given up.
    ConfigKey("timeout", SettingKind.NUMBER, 5.0, low=0.5, high=30.0),
    ConfigKey("server_label"),
    # files
    ConfigKey("roots", SettingKind.NAMES, ()),
    ConfigKey("patterns", SettingKind.NAMES, ("*.log",)),
    ConfigKey("server"),
)
# Nothing is sent sooner than a scanner run; a problem that can wait for a week needs no alert.
ALERTS = (
    ConfigKey("kinds", SettingKind.NAMES, ()),
    ConfigKey("after", SettingKind.NUMBER, 30.0, low=0.0, high=86_400.0),
    ConfigKey("gate_after", SettingKind.NUMBER, 600.0, low=0.0, high=86_400.0),
    ConfigKey("calm", SettingKind.NUMBER, 60.0, low=0.0, high=3600.0),
    ConfigKey("again", SettingKind.NUMBER, 14_400.0, low=0.0, high=_WEEK),
    ConfigKey("most", SettingKind.NUMBER, 10.0, low=1.0, high=1000.0),
    ConfigKey("webhooks", SettingKind.TABLES),
    ConfigKey("email", SettingKind.TABLE),
)
WEBHOOK = (
    ConfigKey("name"),
    ConfigKey("url"),
    ConfigKey("url_file", SettingKind.FILE),
    ConfigKey("format", default="json"),
    ConfigKey("secret"),
    ConfigKey("secret_file", SettingKind.FILE),
    ConfigKey("header", default="X-Unstall-Signature"),
    ConfigKey("tls_ca", SettingKind.FILE),
    ConfigKey("kinds", SettingKind.NAMES, ()),
)
EMAIL = (
    ConfigKey("host"),
    ConfigKey("port", SettingKind.NUMBER, 0.0, low=0.0, high=65_535.0),
    ConfigKey("encryption", default="starttls"),
    ConfigKey("username"),
    ConfigKey("password"),
    ConfigKey("password_file", SettingKind.FILE),
    ConfigKey("from"),
    ConfigKey("to", SettingKind.NAMES, ()),
    ConfigKey("tls_ca", SettingKind.FILE),
    ConfigKey("kinds", SettingKind.NAMES, ()),
)
# Below 10 % nothing would ever start, and above 99 % the gate would never close.
_CLOSE = ConfigKey("close_at", SettingKind.NUMBER, 80.0, low=20.0, high=99.0)
_OPEN = ConfigKey("open_at", SettingKind.NUMBER, 70.0, low=10.0, high=89.0)
# Polls; after a minute of them the CPU has long shown what was started.
_SETTLE = ConfigKey("settle", SettingKind.NUMBER, 2.0, low=1.0, high=12.0)
GATE = (
    _CLOSE,
    _OPEN,
    _SETTLE,
    ConfigKey("without_sample", default="refuse"),
    ConfigKey("open_on_loopback", SettingKind.FLAG, default=False),
)
# Here 0 means: as in [gate].
SERVER = (
    ConfigKey("id"),
    ConfigKey("label"),
    *(replace(key, default=0.0, low=0.0) for key in (_CLOSE, _OPEN, _SETTLE)),
)
METRICS = (
    ConfigKey("open_on_loopback", SettingKind.FLAG, default=False),
    # Some 25 lines each: with 20,000 an answer has 40 MB, which no scraper reads in time.
    ConfigKey("queues", SettingKind.NUMBER, 2000.0, low=1.0, high=20_000.0),
)
IDEMPOTENCY = (
    # What is replayed after a year is no replay any more.
    ConfigKey("keep_days", SettingKind.NUMBER, 7.0, low=1.0, high=365.0),
    ConfigKey("keep_expired_days", SettingKind.NUMBER, 7.0, low=1.0, high=365.0),
    # Some 500 bytes each beside its result.
    ConfigKey("keys", SettingKind.NUMBER, 100_000.0, low=100.0, high=999_999.0),
    ConfigKey("megabytes", SettingKind.NUMBER, 256.0, low=1.0, high=65_536.0),
)
AUDIT = (
    # Oftener than every ten seconds it is no sample of the chain any more; a day is what an attacker has.
    ConfigKey("head_every", SettingKind.NUMBER, 600.0, low=10.0, high=86_400.0),
    ConfigKey("file"),
    ConfigKey("syslog"),
    ConfigKey("url"),
    ConfigKey("url_file", SettingKind.FILE),
    ConfigKey("secret"),
    ConfigKey("secret_file", SettingKind.FILE),
    ConfigKey("tls_ca", SettingKind.FILE),
)
REDACTION = (
    ConfigKey("hide", SettingKind.NAMES, ()),
    ConfigKey("keep", SettingKind.NAMES, ()),
    ConfigKey("show", SettingKind.TABLES),
)
SHOWN_VALUES = (ConfigKey("queues", SettingKind.NAMES, ("*",)), ConfigKey("paths", SettingKind.NAMES, ()))
# Where a policy counts; what it says is read by domain/policies/parser.py.
POLICIES = (ConfigKey("queue"), ConfigKey("deployment"))
ROOT = (
    ConfigKey("environment"),
    ConfigKey("operators_may", SettingKind.NAMES, ("many", "pause")),
    ConfigKey("deployments", SettingKind.TABLES),
    ConfigKey("state", SettingKind.TABLE),
    ConfigKey("intervals", SettingKind.TABLE),
    ConfigKey("thresholds", SettingKind.TABLE),
    ConfigKey("queues", SettingKind.TABLES),
    ConfigKey("databases", SettingKind.TABLES),
    ConfigKey("tables", SettingKind.TABLES),
    ConfigKey("policy", SettingKind.TABLE),
    ConfigKey("policies", SettingKind.TABLES),
    ConfigKey("hooks", SettingKind.TABLES),
    ConfigKey("gate", SettingKind.TABLE),
    ConfigKey("servers", SettingKind.TABLES),
    ConfigKey("metrics", SettingKind.TABLE),
    ConfigKey("idempotency", SettingKind.TABLE),
    ConfigKey("redaction", SettingKind.TABLE),
    ConfigKey("alerts", SettingKind.TABLE),
    ConfigKey("audit", SettingKind.TABLE),
    ConfigKey("nodes", SettingKind.TABLES),
    ConfigKey("prometheus", SettingKind.TABLE),
    ConfigKey("logs", SettingKind.TABLES),
    ConfigKey("n8n", SettingKind.TABLES),
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
