"""Serves /servers: the servers that run workers, their load, their processes, and their history."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from dashboard import gate_cells, server_known
from dashboard.api.caller import guarded
from dashboard.api.names import QueueName, ServerId
from dashboard.discretion import MASKED, Discretion
from dashboard.live import mirror
from dashboard.scopes import Scope
from dashboard.server_past import RANGES
from recovery import shared_clock
from recovery.connections.registry import registry
from recovery.domain.gate import GateState
from recovery.domain.meters import Cell
from recovery.domain.refs import shown, slug, unslug
from recovery.domain.servers import Origin, Process, Server, Stray
from recovery.domain.staff import Floor, Member
from recovery.errors import ServerMissing
from recovery.reads import past

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
        told, terms = gate_cells.badge(server, now), gate_cells.terms(server.id)
        return cls(state=told["state"], since=told["since"], close_at=terms.close_at, open_at=terms.open_at)


class ServerRow(Schema):
    """The last report of one server. CPU is a percentage of the CPU available to it."""

    id: str = Field(description="Id as used in URLs.")
    label: str
    host: str
    origin: Origin = Field(description="Source of the measurement.")
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
    def facts(cls, server: Server, floor: Floor, now: int) -> dict[str, Any]:
        staff = floor.staff(server)
        return {
            **{name: getattr(server, name) for name in (*_NUMBERS, *_SIZES)},
            "id": slug(server.id),
            "label": gate_cells.label(server.id),
            "host": shown(server.host),
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
    def of(cls, member: Member, see: Discretion) -> WorkerProcess:
        process = member.process or Process(0, "", "", 0)
        names = ", ".join(dict.fromkeys(shown(worker.name) for worker in member.workers if worker.name))
        return cls(
            pid=process.pid or None,
            name=names or shown(process.name),
            command=see.text(shown(process.command)),
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
    def of(cls, stray: Stray, see: Discretion) -> StrayProcess:
        same = {name: getattr(stray, name) for name in ("pid", "since", "started_at", "cpu", "memory")}
        texts: dict[str, Any] = {name: see.text(shown(getattr(stray, name))) for name in ("name", "command", "parent")}
        return cls(**same, **texts, files=[see.text(shown(file)) for file in stray.files])


class ServerPoint(Schema):
    """One point of a chart; all null: no measurement."""

    at: int
    cpu_raw: float | None
    cpu_ema: float | None
    cpu_peak: float | None
    memory: float | None = Field(description="Percent.")
    load: float | None

    @classmethod
    def of(cls, cell: Cell) -> ServerPoint:
        return cls(**cell._asdict())


class ServerOne(ServerRow):
    """One server with its processes."""

    processes: list[WorkerProcess]
    stray_processes: list[StrayProcess]
    history: list[ServerPoint] = Field(description="At most 720 points, oldest first; empty without a range.")


class ServerQuery(Schema):
    """Range of the history."""

    range: Range = Field(default="", description="Range of the history; without it no history is returned.")


@router.get("/servers", **guarded(Scope.READ), response=ServerList, url_name="servers", summary="List servers")
def servers(request: HttpRequest) -> ServerList:
    """Lists the last report of each server. The call reads no store."""
    floor, now = server_known.floor(), _now()
    return ServerList(
        servers=[ServerRow(**ServerRow.facts(one, floor, now)) for one in mirror.servers()],
        gone=[ServerGone(id=slug(id), label=gate_cells.label(id), seen_at=at) for id, at in server_known.gone()],
        error=mirror.health().error or None,
    )


@router.get("/servers/{server}", **guarded(Scope.READ), response=ServerOne, url_name="server", summary="Get a server")
def server(request: HttpRequest, server: ServerId, query: Annotated[ServerQuery, Query()]) -> ServerOne:
    """Returns a server, its worker and orphaned processes, and history. One that no longer reports is not found."""
    mine, floor, see, now = _one(server), server_known.floor(), MASKED, _now()
    hours = RANGES.get(query.range)
    points = past.history(registry(), mine.id, hours, now, origin=mine.origin).points if hours else ()
    return ServerOne(
        **ServerRow.facts(mine, floor, now),
        processes=[WorkerProcess.of(member, see) for member in floor.staff(mine).members],
        stray_processes=[StrayProcess.of(stray, see) for stray in mine.strays],
        history=[ServerPoint.of(point) for point in points],
    )


def _one(written: str) -> Server:
    """Returns the server of this id. Raises ServerMissing."""
    try:
        found = server_known.one(unslug(written))
    except ValueError:
        found = None
    if found is None:
        raise ServerMissing("Server not found.")
    return found


def _now() -> int:
    return shared_clock.now()
