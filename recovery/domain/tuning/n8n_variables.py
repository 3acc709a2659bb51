"""n8n's variables that decide over its queue: the versions that read each, and what n8n does without it.

Read from the sources of each of the 697 releases 1.0.0 … 2.36.5, and of 2.41.1. All that begin with QUEUE_ are here, so
another one of that beginning is read by none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from recovery.domain.n8n.versions import NEWEST, Version, text

LOCK: Final = "QUEUE_WORKER_LOCK_DURATION"
RENEW: Final = "QUEUE_WORKER_LOCK_RENEW_TIME"
STALLED_INTERVAL: Final = "QUEUE_WORKER_STALLED_INTERVAL"
MAX_STALLED: Final = "QUEUE_WORKER_MAX_STALLED_COUNT"
SHUTDOWN: Final = "N8N_GRACEFUL_SHUTDOWN_TIMEOUT"
OLD_SHUTDOWN: Final = "QUEUE_WORKER_TIMEOUT"
HEALTH: Final = "QUEUE_HEALTH_CHECK_ACTIVE"
CONCURRENCY: Final = "N8N_CONCURRENCY_PRODUCTION_LIMIT"
POOL: Final = "DB_POSTGRESDB_POOL_SIZE"
THRESHOLD: Final = "QUEUE_BULL_REDIS_TIMEOUT_THRESHOLD"
PREFIX: Final = "QUEUE_BULL_PREFIX"
PROCESS: Final = "EXECUTIONS_PROCESS"
RUNNERS: Final = "N8N_RUNNERS_ENABLED"
DATABASE: Final = "DB_TYPE"
_RECOVERY: Final = "N8N_EXECUTIONS_QUEUE_RECOVERY_INTERVAL"
_START: Version = (1, 0, 0)
FAILS_AT_ONCE: Version = (2, 0, 0)  # from here on an execution whose lock was lost is failed, and never run again
CUTS_CODE: Version = (2, 10, 0)  # 2.0.0 does not; only some of the versions between were read
CODE_SHARE = 0.8  # of the shutdown timeout: then Code nodes that still run are aborted
REDIS_AWAY = 10.0  # seconds that every version waits for Redis, unless THRESHOLD says otherwise
POOL_SIZE = 2  # connections of each process to PostgreSQL, unless POOL says otherwise
_LONGER_LOCK: Version = (1, 111, 0)
_OWN_SHUTDOWN: Version = (1, 22, 0)  # until then QUEUE_WORKER_TIMEOUT was the setting, since then it overrides it
_SETTINGS: Version = (1, 15, 1)


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Range of versions. `since`: the first that reads it; `until`: the first that no longer does. `instead`: what to
    set.
    """

    since: Version = _START
    until: Version | None = None
    instead: str = ""

    def covers(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version < self.until)


@dataclass(frozen=True, slots=True)
class N8nDefaults:
    """Defaults of one version of n8n, in seconds."""

    lock: float
    renew: float
    stalled_interval: float
    max_stalled: int
    shutdown: float


VARIABLES: Final[dict[str, VersionRange]] = {
    LOCK: VersionRange(_SETTINGS),
    RENEW: VersionRange(_SETTINGS),
    STALLED_INTERVAL: VersionRange(_SETTINGS),
    MAX_STALLED: VersionRange(_SETTINGS, FAILS_AT_ONCE),
    OLD_SHUTDOWN: VersionRange(),
    SHUTDOWN: VersionRange(_OWN_SHUTDOWN, instead=OLD_SHUTDOWN),
    HEALTH: VersionRange(),
    "QUEUE_HEALTH_CHECK_PORT": VersionRange(),
    "QUEUE_RECOVERY_INTERVAL": VersionRange(until=(1, 65, 0), instead=_RECOVERY),
    _RECOVERY: VersionRange((1, 47, 0)),
    "N8N_EXECUTIONS_QUEUE_RECOVERY_BATCH": VersionRange((1, 47, 0)),
    CONCURRENCY: VersionRange((1, 47, 0)),
    POOL: VersionRange((1, 18, 0)),
    "N8N_WORKER_SERVER_ADDRESS": VersionRange((1, 63, 0)),
    PREFIX: VersionRange(),
    "QUEUE_BULL_REDIS_CLUSTER_NODES": VersionRange((1, 0, 5)),
    "QUEUE_BULL_REDIS_DB": VersionRange(),
    "QUEUE_BULL_REDIS_DNS_LOOKUP_STRATEGY": VersionRange((2, 2, 0)),
    "QUEUE_BULL_REDIS_DUALSTACK": VersionRange((1, 79, 0)),
    "QUEUE_BULL_REDIS_HOST": VersionRange(),
    "QUEUE_BULL_REDIS_KEEP_ALIVE": VersionRange((2, 7, 0)),
    "QUEUE_BULL_REDIS_KEEP_ALIVE_DELAY": VersionRange((2, 7, 0)),
    "QUEUE_BULL_REDIS_KEEP_ALIVE_INTERVAL": VersionRange((2, 7, 0)),
    "QUEUE_BULL_REDIS_PASSWORD": VersionRange(),
    "QUEUE_BULL_REDIS_PORT": VersionRange(),
    "QUEUE_BULL_REDIS_RECONNECT_ON_FAILOVER": VersionRange((1, 123, 29)),
    "QUEUE_BULL_REDIS_SLOT_REFRESH_INTERVAL": VersionRange((2, 2, 0)),
    "QUEUE_BULL_REDIS_SLOT_REFRESH_TIMEOUT": VersionRange((2, 2, 0)),
    THRESHOLD: VersionRange(),
    "QUEUE_BULL_REDIS_TLS": VersionRange((1, 6, 0)),
    "QUEUE_BULL_REDIS_TLS_SERVERNAME": VersionRange((2, 30, 0)),
    "QUEUE_BULL_REDIS_TLS_VALIDATE_CERTIFICATE": VersionRange((2, 30, 0)),
    "QUEUE_BULL_REDIS_USERNAME": VersionRange(),
}
# Variables that guides name and no version of n8n reads.
PHANTOMS: Final[dict[str, str]] = {
    "N8N_QUEUE_BULL_GRACEFULSHUTDOWNTIMEOUT": SHUTDOWN,
    "N8N_WORKER_TIMEOUT": SHUTDOWN,
    "QUEUE_WORKER_CONCURRENCY": CONCURRENCY,
    "N8N_WORKER_CONCURRENCY": CONCURRENCY,
}
# Variables on n8n's own list of what can be removed (1.123.5, 2.41.1), and since which version.
DEPRECATED: Final[dict[str, Version]] = {
    PROCESS: _START,
    RUNNERS: (2, 10, 0),  # 1.x warns where it is not true
    "EXECUTIONS_DATA_PRUNE_TIMEOUT": (1, 123, 5),
    "N8N_BINARY_DATA_TTL": (1, 123, 5),
    "N8N_PERSISTED_BINARY_DATA_TTL": (1, 123, 5),
    "N8N_SKIP_WEBHOOK_DEREGISTRATION_SHUTDOWN": (1, 123, 5),
    "N8N_EXPRESSION_EVALUATOR": (1, 123, 5),
    "N8N_EXPRESSION_REPORT_DIFFERENCE": (1, 123, 5),
}
# Variables whose values are read; of every other variable only the name is kept.
NUMBERS: Final = frozenset(
    {LOCK, RENEW, STALLED_INTERVAL, MAX_STALLED, SHUTDOWN, OLD_SHUTDOWN, CONCURRENCY, POOL, THRESHOLD}
)
READ: Final = NUMBERS | {HEALTH, PREFIX, PROCESS, RUNNERS, DATABASE}
_FILE = "_FILE"  # n8n reads the value of any variable from a file that NAME_FILE names
_FAMILY = "QUEUE_"
_SLIP = 2  # letters that may differ in a misspelled name; no other of n8n's 578 variables is as close to those here


def defaults(version: Version) -> N8nDefaults:
    lock, renew = (60.0, 10.0) if version >= _LONGER_LOCK else (30.0, 15.0)
    return N8nDefaults(lock, renew, 30.0, 0 if version >= FAILS_AT_ONCE else 1, 30.0)


def has_alias(version: Version) -> bool:
    """Returns True if QUEUE_WORKER_TIMEOUT is the old name of another variable, which it overrides."""
    return version >= _OWN_SHUTDOWN


def ignored(name: str, version: Version) -> tuple[str, str] | None:
    """Returns why this version does not read the variable, and what it reads instead ("": nothing); None: it may read
    it.
    """
    plain = name.removesuffix(_FILE)
    span = VARIABLES.get(plain)
    if span is not None:
        return None if span.covers(version) else (_outside(span, version), _instead(span, version))
    if plain in PHANTOMS:
        return "no version of n8n reads it", PHANTOMS[plain]
    meant = next((known for known in VARIABLES if is_slip(plain, known)), "")
    if meant:
        return "no version of n8n reads it", meant
    if plain.startswith(_FAMILY) and version <= NEWEST:
        return f"no version of n8n up to {text(NEWEST)} reads it", ""
    return None


def _outside(span: VersionRange, version: Version) -> str:
    if version < span.since:
        return f"n8n reads it since {text(span.since)}"
    return f"n8n does not read it since {text(span.until or NEWEST)}"


def _instead(span: VersionRange, version: Version) -> str:
    known = VARIABLES.get(span.instead)
    return span.instead if known and known.covers(version) else ""


def is_slip(written: str, known: str) -> bool:
    """Returns True if `written` looks like a misspelled `known`: at most two letters added, left out or changed."""
    if written == known or abs(len(written) - len(known)) > _SLIP or len(written) > 2 * len(known):
        return False
    row = list(range(len(known) + 1))
    for place, letter in enumerate(written, 1):
        before, row[0] = row[0], place
        for index, other in enumerate(known, 1):
            before, row[index] = row[index], min(row[index] + 1, row[index - 1] + 1, before + (letter != other))
    return row[-1] <= _SLIP
