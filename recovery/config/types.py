"""Values of the configuration, frozen, as the other packages see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from recovery.config.databases import Database, JobTable
from recovery.config.gate import GateConfig
from recovery.config.logs import SHIPPED, LogSource
from recovery.config.metrics import MetricsConfig
from recovery.config.n8n import REDIS_PREFIX, N8nInstallation
from recovery.config.nodes import NodeConfig, PrometheusConfig
from recovery.config.payload_schemas import PayloadSchema
from recovery.config.redaction import RedactionConfig
from recovery.domain.actions.types import Right
from recovery.domain.alerts.channels import Alerting
from recovery.domain.audit.head_targets import AuditHeadTargets
from recovery.domain.hooks.types import Hook
from recovery.domain.idempotency import IdempotencyLimits
from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.policy_layers import LayerValues
from recovery.errors import DeploymentMissing

PRODUCTION_NAMES = frozenset({"production", "prod", "live"})


class DeploymentMode(StrEnum):
    """Kind of a deployment: one server, Sentinel or Cluster."""

    SINGLE = "single"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True, order=True)
class ServerAddress:
    """Address of one server: a host and a port, or the path of a unix socket."""

    host: str = ""
    port: int = 0
    path: str = ""

    def __str__(self) -> str:
        if self.path:
            return self.path
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class StoreLogin:
    username: str = ""
    password: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.password)


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS settings. Empty paths: the system's certificates, and no client certificate."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Deployment:
    """A place where queues live. `nodes` are its servers; with Sentinel they are the sentinels."""

    name: str
    label: str
    mode: DeploymentMode
    url: str = field(repr=False)
    nodes: tuple[ServerAddress, ...]
    database: int = 0
    login: StoreLogin = StoreLogin()
    tls: Tls | None = None
    sentinel_master: str = ""
    sentinel_login: StoreLogin = StoreLogin()
    queues: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    read_only: bool = False
    timeout: float = 0.5

    @property
    def target(self) -> str:
        """Address as a person may see it: no password, no options."""
        return self.target_of(*self.nodes) + self._tail

    def target_of(self, *nodes: ServerAddress) -> str:
        """Returns the address of some of the servers, for an error that one of them caused."""
        user = f"{self.login.username}@" if self.login.username else ""
        return f"{self._scheme}://{user}{','.join(str(node) for node in nodes)}"

    @property
    def _scheme(self) -> str:
        if self.nodes[0].path:
            return "unix"
        scheme = "rediss" if self.tls else "redis"
        return scheme if self.mode is DeploymentMode.SINGLE else f"{scheme}+{self.mode}"

    @property
    def _tail(self) -> str:
        if self.nodes[0].path:
            return f"?db={self.database}" if self.database else ""
        master = f"/{self.sentinel_master}" if self.sentinel_master else ""
        return f"{master}/{self.database}" if self.mode is not DeploymentMode.CLUSTER else ""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits in milliseconds after which something is wrong with a job. `overdue_after` None: it may run for ever."""

    stalled_interval: int = 30_000
    overdue_after: int | None = None
    stale_after: int = 900_000


@dataclass(frozen=True, slots=True)
class Config:
    """The whole configuration. `state` is the state store, shaped like a deployment."""

    deployments: tuple[Deployment, ...] = ()
    state: Deployment | None = None
    databases: tuple[Database, ...] = ()  # SQL; they are deployments too, whose queues are their tables
    tables: tuple[JobTable, ...] = ()
    environment: str = ""
    operators_may: frozenset[Right] = frozenset({Right.MANY, Right.PAUSE})  # beside acting on single jobs
    collect_every: float = 2.0
    discover_every: float = 60.0
    orphans_every: float = 5.0
    n8n_every: float = 30.0
    stale_check_every: float = 900.0
    auto_retry_every: float = 1800.0
    startup_sweep_every: float = 60.0
    prune_every: float = 3600.0
    thresholds: Thresholds = Thresholds()
    # By (deployment, base); ("", base) is that queue in every deployment.
    queue_thresholds: Mapping[tuple[str, str], Thresholds] = field(default_factory=dict, hash=False)
    # The same way; only queues that have one.
    queue_schemas: Mapping[tuple[str, str], PayloadSchema] = field(default_factory=dict, hash=False)
    # What the file says of the scanners: for all queues, for a deployment, for one queue.
    policies: tuple[LayerValues, ...] = field(default=(), hash=False)
    hooks: tuple[Hook, ...] = ()
    gate: GateConfig = field(default_factory=GateConfig)
    logs: tuple[LogSource, ...] = (SHIPPED,)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    idempotency: IdempotencyLimits = field(default_factory=IdempotencyLimits)  # of the ledger
    redaction: RedactionConfig = field(default_factory=RedactionConfig)
    alerting: Alerting = field(default_factory=Alerting)
    audit: AuditHeadTargets = field(default_factory=AuditHeadTargets)  # where heads of its chain are sent
    public_url: str = ""  # where people reach the pages, without a slash at its end; "": not configured
    nodes: tuple[NodeConfig, ...] = ()  # servers without a monitor, measured by others
    prometheus: PrometheusConfig | None = None
    n8n: tuple[N8nInstallation, ...] = ()

    @property
    def state_url(self) -> str | None:
        """URL of the state store with its password: to open it or to hand it to a child process, never to show."""
        return self.state.url if self.state else None

    @property
    def environment_is_production(self) -> bool:
        return self.environment.lower() in PRODUCTION_NAMES

    def n8n_of(self, queue: QueueRef) -> N8nInstallation | None:
        """Returns the n8n installation that owns this queue, or whose worker pool's queue it is."""
        return next((one for one in self.n8n if one.owns(queue)), None)

    def n8n_prefix(self, queue: QueueRef) -> str:
        """Returns the prefix of the keys that the n8n of this queue keeps beside it, configured or not."""
        n8n = self.n8n_of(queue)
        return n8n.redis_prefix if n8n else REDIS_PREFIX

    def n8n_with(self, executions: QueueRef) -> N8nInstallation | None:
        """Returns the n8n installation whose executions these are."""
        return next((one for one in self.n8n if one.executions == executions), None)

    def thresholds_of(self, deployment: str, base: str) -> Thresholds:
        """Returns the queue's own thresholds, else those of its base anywhere, else those of all."""
        own = self.queue_thresholds
        return own.get((deployment, base)) or own.get(("", base)) or self.thresholds

    def schema_of(self, deployment: str, base: str) -> PayloadSchema | None:
        """Returns the queue's own schema, else that of its base anywhere."""
        return self.queue_schemas.get((deployment, base)) or self.queue_schemas.get(("", base))

    @property
    def places(self) -> tuple[Deployment | Database, ...]:
        """All deployments, Redis and SQL."""
        return (*self.deployments, *self.databases)

    def tables_of(self, database: str) -> tuple[JobTable, ...]:
        return tuple(table for table in self.tables if table.database == database)

    def table(self, database: str, name: str) -> JobTable | None:
        """Returns a job table by its shown name, the base of its queue."""
        return next((table for table in self.tables_of(database) if table.name == name), None)

    def deployment(self, name: str) -> Deployment | Database:
        """Returns a deployment, Redis or SQL. Raises DeploymentMissing."""
        for place in self.places:
            if place.name == name:
                return place
        known = ", ".join(place.name for place in self.places) or "none"
        raise DeploymentMissing(f"There is no deployment named {name!r}. Configured: {known}.")
