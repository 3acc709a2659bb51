"""Serves /servers: the servers that run workers, their load, their processes, and their history."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from dashboard.accounts.token_scopes import TokenScope
from dashboard.api.auth import requires_scope
from dashboard.api.identifiers import QueueName, ServerId
from dashboard.base.redaction import MASKED, PayloadRedactor
from dashboard.live import state_cache
from dashboard.servers import gate_presenters
from dashboard.servers import queries as servers_queries
from dashboard.servers.chart_data import RANGES
from recovery import shared_clock
from recovery.domain.gate.state_machine import GateState
from recovery.domain.identifiers import printable, slug, unslug
from recovery.domain.servers.metric_history import ServerCell
from recovery.domain.servers.samples import LeftoverProcess, SampleOrigin, Server, ServerProcess
from recovery.domain.servers.worker_assignment import ServerWorker, WorkersByServer
from recovery.errors import ServerMissing
from recovery.servers import server_history
from recovery.stores.registry import registry

router = Router(tags=["Servers"])
Range = Literal["", "15m", "1h", "6h", "24h", "7d"]
_NUMBERS = ("sampled_at", "poll", "cpu_raw", "cpu_ema", "cpu_host", "cores", "quota", "load1", "load5", "load15")
_SIZES = ("mem_used", "mem_total", "disk_used", "disk_total")


class ServerGate(Schema):
    """Gate of a server: it tells whether heavy work may start there now."""

    state: GateState
    since: int | None
    close_at: float = Field(description="CPU percentage above which it closes.")
    open_at: float = Field(description="CPU percentage below which it opens.")

    @classmethod
    def of(cls, server: Server, now: int) -> ServerGate:
        told, terms = gate_presenters.badge(server, now), gate_presenters.terms(server.id)
        return cls(state=told["state"], since=told["since"], close_at=terms.close_at, open_at=terms.open_at)


class ServerRow(Schema):
    """The last report of one server. CPU is a percentage of the CPU available to it."""

    id: str = Field(description="Id as used in URLs.")
    label: str
    host: str
    origin: SampleOrigin = Field(description="Source of the measurement.")
    sampled_at: int
    poll: int = Field(description="Milliseconds between two samples.")
    cpu_raw: float | None
    cpu_ema: float | None = Field(description="Smoothed: it rises fast and falls slowly.")
    cpu_host: float | None = Field(description="Percentage of all cores of the host, by any process.")
    cores: float | None
    quota: float | None = Field(description="CPU quota in cores, if a cgroup limits it.")
    load1: float | None
    load5: float | None
    load15: float | None
    mem_used: int | None
    mem_total: int | None
    disk_used: int | None
    disk_total: int | None
    gate: ServerGate
    workers: int | None = Field(description="Worker connections from there; null: not all could be listed.")
    active: int | None = Field(description="Jobs they run; null: unknown for some of them.")
    strays: int = Field(description="Orphaned processes: they outlived their worker.")

    @classmethod
    def facts(cls, server: Server, floor: WorkersByServer, now: int) -> dict[str, Any]:
        staff = floor.staff(server)
        return {
            **{name: getattr(server, name) for name in (*_NUMBERS, *_SIZES)},
            "id": slug(server.id),
            "label": gate_presenters.label(server.id),
            "host": printable(server.host),
            "origin": server.origin,
            "gate": ServerGate.of(server, now),
            "workers": staff.workers if floor.is_known else None,
            "active": staff.active if floor.is_known and not staff.is_least else None,
            "strays": len(server.strays),
        }


class ServerGone(Schema):
    """A server that no longer reports."""

    id: str
    label: str
    seen_at: int


class ServerList(Schema):
    """Sorted by id."""

    servers: list[ServerRow]
    gone: list[ServerGone] = Field(description="Newest first; deleted after eight days.")
    error: str | None = Field(description="Why the data is stale: the state store does not answer.")


class WorkerProcess(Schema):
    """A worker process; without a pid only the connection is known."""

    pid: int | None
    name: str
    command: str
    started_at: int | None
    cpu: float | None = Field(description="Percentage of one core.")
    memory: int | None
    queues: list[QueueName] = Field(description="Queues from which it takes jobs.")
    active: int | None

    @classmethod
    def of(cls, member: ServerWorker, see: PayloadRedactor) -> WorkerProcess:
        process = member.process or ServerProcess(0, "", "", 0)
        names = ", ".join(dict.fromkeys(printable(worker.name) for worker in member.workers if worker.name))
        return cls(
            pid=process.pid or None,
            name=names or printable(process.name),
            command=see.text(printable(process.command)),
            started_at=process.started_at or None,
            cpu=process.cpu,
            memory=process.memory,
            queues=[QueueName.of(ref) for ref in member.queues],
            active=member.active if member.workers else None,
        )


class StrayProcess(Schema):
    """A child process that outlived its worker."""

    pid: int
    name: str
    command: str
    parent: str = Field(description="Command of its former worker.")
    since: int
    started_at: int
    cpu: float | None
    memory: int | None
    files: list[str]

    @classmethod
    def of(cls, stray: LeftoverProcess, see: PayloadRedactor) -> StrayProcess:
        same = {name: getattr(stray, name) for name in ("pid", "since", "started_at", "cpu", "memory")}
        texts: dict[str, Any] = {
            name: see.text(printable(getattr(stray, name))) for name in ("name", "command", "parent")
        }
        return cls(**same, **texts, files=[see.text(printable(file)) for file in stray.files])


class ServerPoint(Schema):
    """A point of a chart; all null: no measurement."""

    at: int
    cpu_raw: float | None
    cpu_ema: float | None
    cpu_peak: float | None
    memory: float | None = Field(description="Percent.")
    load: float | None

    @classmethod
    def of(cls, cell: ServerCell) -> ServerPoint:
        return cls(**cell._asdict())


class ServerDetail(ServerRow):
    """A server with its processes."""

    processes: list[WorkerProcess]
    stray_processes: list[StrayProcess]
    history: list[ServerPoint] = Field(description="At most 720 points, oldest first; empty without a range.")


class ServerQuery(Schema):
    """Range of the history."""

    range: Range = Field(default="", description="Range of the history; without it no history is returned.")


@router.get(
    "/servers", **requires_scope(TokenScope.READ), response=ServerList, url_name="servers", summary="List servers"
)
def servers(request: HttpRequest) -> ServerList:
    """Lists the last report of each server. The call reads no store."""
    floor, now = servers_queries.read_workers(), _now()
    return ServerList(
        servers=[ServerRow(**ServerRow.facts(one, floor, now)) for one in state_cache.servers()],
        gone=[
            ServerGone(id=slug(id), label=gate_presenters.label(id), seen_at=at)
            for id, at in servers_queries.gone_servers()
        ],
        error=state_cache.health().error or None,
    )


@router.get(
    "/servers/{server}",
    **requires_scope(TokenScope.READ),
    response=ServerDetail,
    url_name="server",
    summary="Get a server",
)
def server(request: HttpRequest, server: ServerId, query: Annotated[ServerQuery, Query()]) -> ServerDetail:
    """Returns a server, its worker and orphaned processes, and history. One that no longer reports is not found."""
    mine, floor, see, now = _one(server), servers_queries.read_workers(), MASKED, _now()
    hours = RANGES.get(query.range)
    points = server_history.history(registry(), mine.id, hours, now, origin=mine.origin).points if hours else ()
    return ServerDetail(
        **ServerRow.facts(mine, floor, now),
        processes=[WorkerProcess.of(member, see) for member in floor.staff(mine).members],
        stray_processes=[StrayProcess.of(stray, see) for stray in mine.strays],
        history=[ServerPoint.of(point) for point in points],
    )


def _one(written: str) -> Server:
    """Returns the server of this id. Raises ServerMissing."""
    try:
        found = servers_queries.find_server(unslug(written))
    except ValueError:
        found = None
    if found is None:
        raise ServerMissing("Server not found.")
    return found


def _now() -> int:
    return shared_clock.now()
