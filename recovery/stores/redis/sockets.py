"""Opens sockets under a deadline: names, TCP, unix sockets, TLS, and finding out which protocol a server speaks."""

from __future__ import annotations

import queue
import select
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any

from recovery.config import ServerAddress, Tls
from recovery.errors import StoreError, TlsMismatch, Unreachable
from recovery.stores.redis import redis_errors

CONNECT_LIMIT = 0.5  # seconds to connect and log in: a page is to answer within one
_PROBE_LIMIT = 0.2  # seconds to find out whether a server that hung up speaks the other protocol
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # a vanished host is noticed within 45 s


def dial(address: ServerAddress, target: str, deadline: float, limit: float) -> socket.socket:
    """Returns a connected socket; raises StoreError."""
    try:
        return _unix(address, deadline) if address.path else _tcp(address, deadline)
    except TimeoutError as error:
        raise Unreachable(target, f"no connection within {limit:g} s") from error
    except (OSError, UnicodeError) as error:  # UnicodeError: a host name that no name server can be asked for
        raise redis_errors.from_system(error, target) if isinstance(error, OSError) else _no_host(target) from error


def _no_host(target: str) -> StoreError:
    return Unreachable(target, "no such host")


def _unix(address: ServerAddress, deadline: float) -> socket.socket:
    return _connected(socket.AF_UNIX, address.path, deadline)


def _tcp(address: ServerAddress, deadline: float) -> socket.socket:
    failure: OSError | None = None
    for family, place in _resolved(address, deadline):
        try:
            opened = _connected(family, place, deadline)
        except OSError as error:
            failure = error
            continue
        _tune(opened)
        return opened
    raise failure or socket.gaierror(address.host)


def _connected(family: int, place: Any, deadline: float) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.settimeout(_left(deadline))
        opened.connect(place)
    except BaseException:
        opened.close()
        raise
    return opened


def _tune(opened: socket.socket) -> None:
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, seconds in _KEEPALIVE.items():
        if hasattr(socket, name):  # macOS has other names
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)


def _resolved(address: ServerAddress, deadline: float) -> list[tuple[int, Any]]:
    """Returns the host's addresses. getaddrinfo knows no timeout, so a thread that can be left behind asks it."""
    with suppress(socket.gaierror):  # a number needs no name server
        return _places(socket.getaddrinfo(*_question(address), flags=socket.AI_NUMERICHOST))
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(*_question(address)))
        except (OSError, UnicodeError) as error:
            answers.put(error)

    threading.Thread(target=ask, name="unstall-resolve", daemon=True).start()
    try:
        answer = answers.get(timeout=_left(deadline))
    except queue.Empty:
        raise socket.gaierror(socket.EAI_AGAIN, "not resolved in time") from None
    if isinstance(answer, Exception):
        raise answer
    return _places(answer)


def _question(address: ServerAddress) -> tuple[str, int, int, int]:
    return address.host, address.port, socket.AF_UNSPEC, socket.SOCK_STREAM


def _places(answer: list[Any]) -> list[tuple[int, Any]]:
    return [(family, place) for family, _, _, _, place in answer]


def context(tls: Tls, target: str) -> ssl.SSLContext:
    """Makes the TLS context, once a deployment: loading the certificates costs 10 ms and more. Raises TlsMismatch."""
    try:
        made = ssl.create_default_context(cafile=tls.ca or None)
        if not tls.verify:
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
        if tls.certificate:
            made.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ValueError) as error:
        raise TlsMismatch(target, f"the certificate files cannot be used: {error}") from error
    return made


def secure(plain: socket.socket, address: ServerAddress, made: ssl.SSLContext, deadline: float) -> ssl.SSLSocket:
    plain.settimeout(_left(deadline))
    return made.wrap_socket(plain, server_hostname=address.host)


def has_unread_data(connected: socket.socket) -> bool:
    """Returns True if anything waits to be read: between calls that is a hang-up or a stray answer."""
    poll = select.poll()
    poll.register(connected, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))


def speaks_plain(address: ServerAddress) -> bool:
    """Returns True if a bare PING is answered as only a Redis answers it."""
    try:
        with _probe(address) as probe:
            probe.sendall(b"PING\r\n")
            return probe.recv(1) in (b"+", b"-")
    except OSError:
        return False


def speaks_tls(address: ServerAddress) -> bool:
    """Returns True if a TLS handshake is answered in kind. No certificate is checked: nothing is sent."""
    if address.path:
        return False
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    try:
        with _probe(address) as probe, made.wrap_socket(probe, server_hostname=address.host):
            return True
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
        return False
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # refused, but in TLS: it wants a client certificate
    except OSError:
        return False


def _probe(address: ServerAddress) -> socket.socket:
    deadline = time.monotonic() + _PROBE_LIMIT
    probe = _unix(address, deadline) if address.path else _tcp(address, deadline)
    probe.settimeout(_PROBE_LIMIT)
    return probe


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
