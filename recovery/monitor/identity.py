"""The stable name of this server: as configured, else made from the machine's own id, else its host name."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Mapping
from pathlib import Path

MACHINE_ID = Path("/etc/machine-id")
LENGTH = 12  # hexadecimal digits: enough to tell a company's servers apart


def server_id(environ: Mapping[str, str], machine_id: Path = MACHINE_ID) -> str:
    configured = environ.get("UNSTALL_SERVER_ID", "").strip()
    if configured:
        return configured
    try:
        own = machine_id.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        own = ""
    if not own:
        return socket.gethostname()
    # The machine's id is not for other eyes (machine-id(5)); what we derive from it is.
    return hashlib.sha256(f"unstall:{own}".encode()).hexdigest()[:LENGTH]
