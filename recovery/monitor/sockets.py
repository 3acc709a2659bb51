"""Reads the open connections and files of a process. Addresses have the form of CLIENT LIST, to be joined with it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address

from recovery.monitor import procfs

SOCKETS = 32  # of one process; those to its stores are among the first that it opened
FILES = 8  # of one process
NAME_LENGTH = 200  # characters of a file's name
_ESTABLISHED = b"01"
_INODE = 9  # column of the table
_SYSTEM = ("/dev/", "/proc/", "/sys/")


class Sockets:
    """Connections of many processes at one moment; the table of a network namespace is read once for all of them."""

    def __init__(self) -> None:
        self._tables: dict[int, dict[str, str]] = {}

    def of(self, pid: int, before: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Returns the local addresses of its TCP connections; those of the last read come first, because they last."""
        inodes = [name[8:-1] for _, name in procfs.links(pid) if name.startswith("socket:[")]
        if not inodes:
            return ()
        network = procfs.network(pid)
        if network not in self._tables:
            self._tables[network] = dict(_connected(pid))
        table = self._tables[network]
        found = dict.fromkeys(table[inode] for inode in inodes if inode in table)
        kept = [address for address in before if address in found]
        return tuple(dict.fromkeys([*kept, *found]))[:SOCKETS]


def files(pid: int) -> tuple[str, ...]:
    """Returns the regular files that it has open."""
    found: dict[str, None] = {}
    for number, name in procfs.links(pid):
        if name.startswith("/") and not name.startswith(_SYSTEM) and name not in found:
            if procfs.is_directory(pid, number):
                continue
            found[name[:NAME_LENGTH]] = None
            if len(found) == FILES:
                break
    return tuple(found)


def _connected(pid: int) -> Iterator[tuple[str, str]]:
    """Yields inode and local address of every connection of its network namespace."""
    for version in ("tcp", "tcp6"):
        for line in procfs.connections(pid, version).splitlines()[1:]:
            columns = line.split()
            if len(columns) > _INODE and columns[3] == _ESTABLISHED:
                yield columns[_INODE].decode("ascii"), format_address(columns[1].decode("ascii"))


def format_address(end: str) -> str:
    """Formats an address of the kernel's table: `0100007F:1F90` becomes `127.0.0.1:8080`."""
    address, _, port = end.partition(":")
    words = struct.unpack(f"={len(address) // 8}I", struct.pack(f">{len(address) // 8}I", *_words(address)))
    one = ip_address(b"".join(struct.pack(">I", word) for word in words))
    if isinstance(one, IPv6Address):
        one = one.ipv4_mapped or one
    host = f"[{one}]" if isinstance(one, IPv6Address) else str(one)
    return f"{host}:{int(port, 16)}"


def _words(address: str) -> list[int]:
    return [int(address[start : start + 8], 16) for start in range(0, len(address), 8)]
