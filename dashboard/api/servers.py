"""/servers: the machines that run workers, how busy each is, who works on it, and how it was over time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from dashboard import gate_cells, server_known
from dashboard.api.caller import Caller, guarded
from dashboard.api.names import QueueName, ServerId
from dashboard.discretion import Discretion
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
    """Whether heavy work may start there now."""

    state: GateState
    since: int | None
    close_at: float = Field(description="Percent of CPU above which it closes.")
    open_at: float = Field(description="Percent of CPU below which it opens.")

    @classmethod
    def of(cls, server: Server, now: int) -> ServerGate:
        told, terms = gate_cells.badge(server, now), gate_cells.terms(server.id)
        return cls(state=told["state"], since=told["since"], close_at=terms.close_at, open_at=terms.open_at)


class ServerRow(Schema):
    """One server as it told of itself last. CPU is percent of all that it may use."""

    id: str = Field(description="As it stands in addresses.")
    label: str
    host: str
    origin: Origin = Field(description="Who measured.")
    sampled_at: int
    poll: int = Field(description="Milliseconds between two samples.")
    cpu_raw: float | None
    cpu_ema: float | None = Field(description="Smoothed: it rises fast and falls slowly.")
    cpu_host: float | None = Field(description="Of all cores of the host, whoever uses them.")
    cores: float | None
    quota: float | None = Field(description="Cores, when a cgroup limits them.")
    load1: float | None
    load5: float | None
    load15: float | None
    mem_used: int | None
    mem_total: int | None
    disk_used: int | None
    disk_total: int | None
    gate: ServerGate
    workers: int | None = Field(description="Connections from there that take jobs; null: not all could be listed.")
    active: int | None = Field(description="Jobs they run; null where that cannot be told of all of them.")
    strays: int = Field(description="Processes that outlived their worker.")

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
    """One that is not there any more."""

    id: str
    label: str
    seen_at: int


class ServerList(Schema):
    """By their ids."""

    servers: list[ServerRow]
    gone: list[ServerGone] = Field(description="The latest first; forgotten after eight days.")
    error: str | None = Field(description="Why nothing newer is known: the state store does not answer.")


class WorkerProcess(Schema):
    """A worker process; without a pid only its connection is known."""

    pid: int | None
    name: str
    command: str
    started_at: int | None
    cpu: float | None = Field(description="Percent of one core.")
    memory: int | None
    queues: list[QueueName] = Field(description="Those it takes jobs of.")
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
    """A child of a worker that outlived it."""

    pid: int
    name: str
    command: str
    parent: str = Field(description="The command of the worker it belonged to.")
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
    """One point of a chart; all null: nobody measured."""

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
    """What of its past."""

    range: Range = Field(default="", description="How far back the history goes; without it there is none.")


@router.get("/servers", **guarded(Scope.READ), response=ServerList, url_name="servers", summary="All servers")
def servers(request: HttpRequest) -> ServerList:
    """As they told of themselves last. No store is asked."""
    floor, now = server_known.floor(), _now()
    return ServerList(
        servers=[ServerRow(**ServerRow.facts(one, floor, now)) for one in mirror.servers()],
        gone=[ServerGone(id=slug(id), label=gate_cells.label(id), seen_at=at) for id, at in server_known.gone()],
        error=mirror.health().error or None,
    )


@router.get("/servers/{server}", **guarded(Scope.READ), response=ServerOne, url_name="server", summary="One server")
def server(request: HttpRequest, server: ServerId, query: Annotated[ServerQuery, Query()]) -> ServerOne:
    """With its worker processes, what dead ones left, and how it was. One that is gone is not found."""
    mine, floor, see, now = _one(server), server_known.floor(), Caller.of(request).sees, _now()
    hours = RANGES.get(query.range)
    points = past.history(registry(), mine.id, hours, now, origin=mine.origin).points if hours else ()
    return ServerOne(
        **ServerRow.facts(mine, floor, now),
        processes=[WorkerProcess.of(member, see) for member in floor.staff(mine).members],
        stray_processes=[StrayProcess.of(stray, see) for stray in mine.strays],
        history=[ServerPoint.of(point) for point in points],
    )


def _one(written: str) -> Server:
    """Raises ServerMissing."""
    try:
        found = server_known.one(unslug(written))
    except ValueError:
        found = None
    if found is None:
        raise ServerMissing("There is no such server now.")
    return found


def _now() -> int:
    return shared_clock.now()
