"""Opens the socket of the web process, before anything else, so that a port in use is reported at once."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

UNIX = "unix:"
# For its owner and the group, to which the user of the proxy belongs: every client of it may count as the proxy.
SOCKET_MODE = 0o660


class CannotListen(Exception):
    """Raised if the socket cannot be opened; the text says why, and what would be right."""


def listen(bind: str) -> socket.socket:
    """Returns a listening socket for `host:port` or `unix:path`. Raises CannotListen."""
    return _unix(Path(bind.removeprefix(UNIX))) if bind.startswith(UNIX) else _tcp(*_split(bind))


def address(listener: socket.socket) -> str:
    """Returns the URL of the socket, as it is typed into a browser."""
    name = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return f"{UNIX}{name}"
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"http://{host}:{name[1]}/"


def forget(bind: str) -> None:
    """Removes the socket's file, if it has one."""
    if bind.startswith(UNIX):
        Path(bind.removeprefix(UNIX)).unlink(missing_ok=True)


def _split(bind: str) -> tuple[str, int]:
    host, colon, port = bind.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CannotListen(f"UNSTALL_BIND: {bind!r} is no address. Write host:port, [v6]:port or unix:/path.")
    return host.strip("[]"), int(port)


def _tcp(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as failure:
        raise CannotListen(f"UNSTALL_BIND: {host!r} is no host of this machine ({failure.strerror}).") from failure
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(place)
        listener.listen()  # now, because bind alone does not see every taken port
    except OSError as failure:
        listener.close()
        raise CannotListen(_why(failure, host, port)) from failure
    return listener


def _why(failure: OSError, host: str, port: int) -> str:
    if failure.errno == errno.EADDRINUSE:
        return (
            f"Port {port} on {host or 'all addresses'} is in use by another process. "
            f"Stop that one, or choose another port: UNSTALL_BIND={host}:{port + 1 if port < 65535 else 8000}"
        )
    if failure.errno == errno.EACCES:
        return f"Port {port} needs a right that this user lacks. Use a port above 1023 and a proxy in front."
    return f"UNSTALL_BIND: cannot listen on {host}:{port}: {failure.strerror}."


def _unix(path: Path) -> socket.socket:
    _clear(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)  # no client can connect before the next line
        listener.listen()
    except OSError as failure:
        listener.close()
        raise CannotListen(f"UNSTALL_BIND: cannot listen on {path}: {failure.strerror or failure}.") from failure
    return listener


def _clear(path: Path) -> None:
    """Removes a socket that a killed process left behind. Raises CannotListen for one in use, or another file."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 -- one call, and the kind of the file from it
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise CannotListen(f"UNSTALL_BIND: {path} exists and is no socket. Choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        if probe.connect_ex(str(path)) == 0:
            raise CannotListen(
                f"UNSTALL_BIND: another process listens on {path}. Stop that one, or choose another path."
            )
    path.unlink(missing_ok=True)
