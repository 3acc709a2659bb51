"""Reads load, memory, disk and network addresses of the machine."""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Any

import psutil

ADDRESSES = 32  # at most; a host of containers has hundreds, which are not its own
_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def read_gauges(disk: str) -> dict[str, Any]:
    """Returns the gauges by their field names in Server; values that cannot be read are left out."""
    memory = psutil.virtual_memory()
    load1, load5, load15 = psutil.getloadavg()
    # `used` differs from system to system; what is not available is used.
    told = {"load1": load1, "load5": load5, "load15": load15, "mem_used": memory.total - memory.available}
    return {**told, "mem_total": memory.total, **_disk(disk)}


def _disk(path: str) -> dict[str, int]:
    try:
        usage = psutil.disk_usage(path)
    except OSError:
        return {}
    return {"disk_used": usage.used, "disk_total": usage.total}


def read_addresses() -> tuple[str, ...]:
    """Returns the addresses of the machine's interfaces, without loopback, link-local and multicast ones."""
    try:
        cards = psutil.net_if_addrs()
    except OSError:
        return ()
    found = {one.address for card in cards.values() for one in card if one.family in _FAMILIES}
    return tuple(sorted(address for address in found if _is_own(address)))[:ADDRESSES]


def _is_own(address: str) -> bool:
    try:
        one = ip_address(address)
    except ValueError:  # with the name of an interface behind it
        return False
    return not (one.is_loopback or one.is_link_local or one.is_unspecified or one.is_multicast)
