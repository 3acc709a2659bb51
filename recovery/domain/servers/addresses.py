"""Maps a connection to its server, and tells how busy that server is.

A monitor sends the sockets of the worker processes it can name, and the addresses of its machine. A socket is the
proof; an address counts only when one server alone has it: containers and loopback are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from recovery.domain.servers.samples import Server

POLLS_FRESH = 3  # an older sample says nothing of how busy a server is now
_MAPPED = "::ffff:"  # an IPv4 address as a socket of both kinds writes it


@dataclass(frozen=True, slots=True)
class AddressMap:
    """Sockets, addresses and CPU loads of all servers that report."""

    sockets: Mapping[str, str] = field(default_factory=dict)  # end of a connection → server
    addresses: Mapping[str, str] = field(default_factory=dict)  # address of a machine → server
    loads: Mapping[str, float] = field(default_factory=dict)  # server → percent of its CPU

    @classmethod
    def of(cls, servers: Iterable[Server], now: int) -> AddressMap:
        known = tuple(servers)
        return cls(
            sockets=_owned((end, one.id) for one in known for process in one.processes for end in process.sockets),
            addresses=_owned((host, one.id) for one in known for host in one.addresses if not _is_loopback(host)),
            loads={one.id: one.cpu for one in known if one.cpu is not None and is_fresh(one, now)},
        )

    def server(self, address: str) -> str:
        """Returns the server of a connection, by its address in CLIENT LIST; "" when it is not known."""
        return self.sockets.get(normalize_address(address)) or self.addresses.get(
            normalize_address(host_of(address)), ""
        )

    def host(self, address: str) -> str:
        """Returns the server of a connection, or else the host that the address names; "" for a unix socket."""
        return self.server(address) or host_of(address)


def host_of(address: str) -> str:
    """Returns the host of an address as CLIENT LIST writes it; "" for a unix socket."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") if port.isdigit() and port != "0" else ""


def is_fresh(server: Server, now: int) -> bool:
    return now - server.sampled_at <= POLLS_FRESH * server.poll


def _owned(claims: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Maps each claimed name to its server; names that two servers claim are mapped to ""."""
    found: dict[str, str] = {}
    for claimed, server in claims:
        name = normalize_address(claimed)
        found[name] = server if found.get(name, server) == server else ""
    return found


def normalize_address(address: str) -> str:
    """Returns the address in its IPv4 form if it is an IPv4 address mapped to IPv6."""
    return address.replace(_MAPPED, "", 1).replace("[", "").replace("]", "") if _MAPPED in address else address


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return True  # no address at all
