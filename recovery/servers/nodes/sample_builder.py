"""Builds the sample of a server from values of an exporter or a Prometheus, in the form that a monitor writes."""

from __future__ import annotations

from ipaddress import ip_address

from recovery.domain.servers.node_exporter import NodeGauges
from recovery.domain.servers.samples import SampleOrigin, Server


def build_sample(
    id: str,
    origin: SampleOrigin,
    gauges: NodeGauges,
    *,
    at: int,
    poll: int,
    busy: float,
    average: float,
    cores: int | None,
    address: str = "",
) -> Server:
    """Returns the sample. Quotas and processes cannot be seen from outside, so the CPU is that of all cores."""
    return Server(
        id=id,
        host=gauges.host or id,
        sampled_at=at,
        poll=poll,
        origin=origin,
        cpu_raw=busy,
        cpu_ema=average,
        cpu_host=busy,
        cores=cores,
        load1=gauges.load1,
        load5=gauges.load5,
        load15=gauges.load15,
        mem_used=gauges.mem_used,
        mem_total=gauges.mem_total,
        disk_used=gauges.disk_used,
        disk_total=gauges.disk_total,
        addresses=_addresses(address),
    )


def _addresses(address: str) -> tuple[str, ...]:
    """Returns the address, to be matched with CLIENT LIST; none for a loopback address or a host name."""
    try:
        return () if ip_address(address).is_loopback else (address,)
    except ValueError:
        return ()
