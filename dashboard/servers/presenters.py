"""Presents servers: a card for each, its worker processes with their queues, and what dead workers left behind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from django.urls import reverse

from dashboard.base.job_rows import Cells, brief
from dashboard.base.redaction import PayloadRedactor
from recovery.domain.identifiers import printable, slug
from recovery.domain.queues.types import Worker
from recovery.domain.servers.metric_history import SECOND, ServerCell, ServerSeries, merge_cells
from recovery.domain.servers.samples import LeftoverProcess, SampleOrigin, Server, ServerProcess
from recovery.domain.servers.worker_assignment import ServerWorker, WorkerAssignment
from recovery.domain.time_units import age
from recovery.servers.sample_store import POLLS_KEPT

POLLS_MISSED = 2  # after so many missed reports its numbers are old
NUMBERS = 60  # lines of the table that stands for the chart: what a person still reads
_SOURCES = {
    SampleOrigin.MONITOR: "",
    SampleOrigin.EXPORTER: "read from its node_exporter",
    SampleOrigin.PROMETHEUS: "read from Prometheus",
    SampleOrigin.LOCAL: "measured by the web process",
}


def card(server: Server, staff: WorkerAssignment | None, seen_at: int, now: int) -> Cells:
    """Returns a server's card. `staff` None: no workers could be listed. `seen_at`: its last report, by our clock."""
    ends_in = seen_at + POLLS_KEPT * server.poll - now
    is_old = now - seen_at > POLLS_MISSED * server.poll
    return {
        "id": server.id,
        "anchor": f"server-{slug(server.id)}",
        "url": reverse("server", args=[server.id]),
        "raw": percent(server.cpu_raw),
        "smoothed": percent(server.cpu_ema),
        "memory": share(server.mem_used, server.mem_total),
        "load": load(server),
        "disk": share(server.disk_used, server.disk_total),
        "workers": workers(staff),
        "jobs": jobs(staff),
        "seen_at": seen_at,
        "source": _SOURCES[server.origin],
        "is_old": is_old,
        "leaves": _leaves(ends_in) if is_old else "",
        "strays": len(server.strays),
    }


def _leaves(ends_in: int) -> str:
    """Says when the server will be removed: when its key in the state store expires."""
    return f"removed in {age(ends_in)}" if ends_in >= SECOND else "being removed"


def percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} %"


def share(used: int | None, total: int | None) -> str:
    """Returns the used share in percent; "" where it is not known."""
    return "" if used is None or not total else f"{100 * used / total:.0f} %"


def load(server: Server) -> str:
    if server.load1 is None:
        return ""
    return f"{server.load1:.1f}" + (f"/{server.cores:g}" if server.cores else "")


def _cores(cores: float) -> str:
    return f"{cores:g} core{'s' * (cores != 1)}"


def workers(staff: WorkerAssignment | None) -> str:
    if staff is None:
        return "workers unknown"
    return f"{staff.workers:,} worker{'s' * (staff.workers != 1)}" if staff.workers else "no workers"


def jobs(staff: WorkerAssignment | None) -> str:
    """Returns the number of running jobs in words; "" where no worker could run any."""
    if staff is None or not staff.workers:
        return ""
    if staff.active is None:
        return "jobs unknown"
    least = "at least " if staff.is_least else ""
    return f"{least}{staff.active:,} job{'s' * (staff.active != 1)}"


def facts(server: Server) -> list[tuple[str, str]]:
    """Returns the facts that the cards have no room for."""
    told = (
        ("Host", printable(server.host)),
        ("Addresses", ", ".join(map(printable, server.addresses))),
        ("Available CPU", _quota(server)),
        ("CPU of the host", "" if server.cpu_host is None or server.quota is None else percent(server.cpu_host)),
        ("Load, 1, 5, 15 min", _loads(server)),
        ("Interval", f"{server.poll / SECOND:g} s"),
    )
    return [(name, words) for name, words in told if words]


def _quota(server: Server) -> str:
    if server.cores is None:
        return ""
    return _cores(server.cores) + (", limited by its cgroup quota" if server.quota is not None else "")


def _loads(server: Server) -> str:
    known = (server.load1, server.load5, server.load15)
    return "" if None in known else ", ".join(f"{value:.2f}" for value in known)


def members(staff: WorkerAssignment, see: PayloadRedactor) -> list[Cells]:
    """Presents worker processes: those that take jobs come first, the busiest of them before the others."""
    order = sorted(staff.members, key=lambda one: (not one.workers, -((one.process and one.process.cpu) or 0)))
    return [_member(one, see) for one in order]


def _member(member: ServerWorker, see: PayloadRedactor) -> Cells:
    return {
        **_process(member.process, see),
        "name": _names(member),
        "queues": [_queue(ref) for ref in member.queues],
        "addresses": "" if member.process else ", ".join(printable(worker.address) for worker in member.workers),
        "active": member.active if member.workers else None,
        "takes_jobs": bool(member.workers),
    }


def _names(member: ServerWorker) -> str:
    """Returns the worker's own name, else that of its process."""
    told = _told(member.workers)
    return told or (printable(member.process.name) if member.process else "")


def _told(workers: Sequence[Worker]) -> str:
    return ", ".join(dict.fromkeys(printable(worker.name) for worker in workers if worker.name))


def _process(process: ServerProcess | None, see: PayloadRedactor) -> Cells:
    if process is None:
        return {"pid": None, "command": "", "cpu": None, "memory": None, "started_at": None}
    return {
        "pid": process.pid,
        "command": brief(see.text(printable(process.command))),
        "cpu": None if process.cpu is None else percent(process.cpu),
        "memory": process.memory,
        "started_at": process.started_at,
    }


def _queue(ref: Any) -> Cells:
    return {"label": ref.label, "url": f"{reverse('queue', args=[ref.deployment, ref.base])}?tab=active"}


def strays(found: Iterable[LeftoverProcess], see: PayloadRedactor) -> list[Cells]:
    return [
        {
            "name": printable(stray.name),
            "pid": stray.pid,
            "command": brief(see.text(printable(stray.command))),
            "parent": brief(see.text(printable(stray.parent))),
            "since": stray.since,
            "started_at": stray.started_at,
            "cpu": None if stray.cpu is None else percent(stray.cpu),
            "memory": stray.memory,
            "files": [see.text(printable(name)) for name in stray.files],
        }
        for stray in found
    ]


def numbers(series: ServerSeries) -> list[ServerCell]:
    """Returns the chart as at most NUMBERS lines, newest first."""
    width = max(1, -(-len(series.points) // NUMBERS))
    starts = range(0, len(series.points), width)
    parts = (series.points[start : start + width] for start in starts)
    return [merge_cells(part[0].at, part) for part in parts][::-1]
