"""Sends one head of the audit to a file, to syslog, or to a webhook. Each ends within a deadline."""

from __future__ import annotations

import os
import socket
import stat
import threading
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from recovery.domain.audit.head_targets import AuditHeadTarget, AuditHeadTargets
from recovery.errors import NotDelivered
from recovery.stores.http import webhooks
from recovery.stores.send_deadline import CancellableSockets, run_within

SECONDS = 5.0  # for one target; a disk or a receiver that needs longer is down
_AUTHPRIV_NOTICE = 10 * 8 + 5
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_PROGRAM = "unstall-audit"
# A disk that hangs cannot be cut off: one thread waits for it, and no more.
_busy = {place: threading.Lock() for place in AuditHeadTarget}


def send(places: AuditHeadTargets, place: AuditHeadTarget, line: str, id: str) -> None:
    """Sends one line of JSON; `id` is the same for the same head. Raises NotDelivered."""

    def work(lifeline: CancellableSockets) -> str:
        if not _busy[place].acquire(blocking=False):
            raise NotDelivered("The previous attempt has not finished.")
        try:
            match place:
                case AuditHeadTarget.FILE:
                    _append(Path(places.file), line)
                case AuditHeadTarget.SYSLOG:
                    _log(places.syslog, line, lifeline)
                case AuditHeadTarget.WEBHOOK if places.webhook:
                    webhooks.send(places.webhook, id, line.encode(), SECONDS, lifeline)
        finally:
            _busy[place].release()
        return ""

    run_within(SECONDS, work)


def _append(path: Path, line: str) -> None:
    """Appends a line and syncs it, with the name of a file that is new. A line is one write: none is torn."""
    try:
        is_new = not path.exists()
        file = os.open(path, _FLAGS, 0o600)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise NotDelivered(f"{path} is not a file.")
            os.write(file, f"{line}\n".encode())
            os.fsync(file)
        finally:
            os.close(file)
        if is_new:
            _sync(path.parent)
    except OSError as error:
        raise NotDelivered(f"{path} cannot be written: {error.strerror}.") from error


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _log(address: str, line: str, lifeline: CancellableSockets) -> None:
    """Sends RFC 5424 over the network, the short form on the machine's own socket. UDP cannot tell that it arrived."""
    parts = urlsplit(address)
    try:
        if not parts.scheme:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
                local.settimeout(SECONDS)
                local.connect(address)
                local.send(f"<{_AUTHPRIV_NOTICE}>{_PROGRAM}[{os.getpid()}]: {line}".encode())
            return
        host, port = parts.hostname or "", parts.port or 514
        message = f"<{_AUTHPRIV_NOTICE}>1 {_now()} {socket.gethostname()} {_PROGRAM} {os.getpid()} - - {line}".encode()
        if parts.scheme == "udp":
            family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind, protocol) as sender:
                sender.sendto(message, place)
            return
        with socket.create_connection((host, port), SECONDS) as connected:
            lifeline.hold(connected)
            connected.sendall(message + b"\n")
    except OSError as error:
        raise NotDelivered(f"{address} refused it: {error.strerror or error}.", may_have=True) from error


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
