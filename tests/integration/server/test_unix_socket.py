"""The unix socket of a web process: for its group alone, and believed like a proxy only where that is configured."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import pwd
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from dashboard.server.listen import forget, listen
from dashboard.server.uvicorn_server import configuration
from tests.support.patience import patience

_TRY = """
import os, socket, sys
os.setgroups([]); os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[1]))
sys.exit(socket.socket(socket.AF_UNIX).connect_ex(sys.argv[3]))
"""
_REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n"


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="unstall-socket-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory) / "web.sock"


def test_it_is_for_its_owner_and_the_group_alone(place: Path) -> None:
    with listen(f"unix:{place}"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o660
        if os.geteuid() == 0:  # root lends a user who is in no group of ours
            nobody = pwd.getpwnam("nobody")
            command = [sys.executable, "-c", _TRY, str(nobody.pw_uid), str(nobody.pw_gid), str(place)]
            tried = subprocess.run(command, check=False)
            assert tried.returncode == errno.EACCES
    forget(f"unix:{place}")


@pytest.mark.parametrize(
    ("proxies", "client"),
    [
        (("unix",), "203.0.113.9"),
        (("10.0.0.1", "unix"), "203.0.113.9"),
        (("127.0.0.1",), "0.0.0.0"),
        (("10.0.0.0/8", "::1"), "0.0.0.0"),
        ((), "0.0.0.0"),
    ],
)
async def test_who_reaches_it_is_believed_only_where_that_is_said(
    place: Path, proxies: tuple[str, ...], client: str
) -> None:
    assert await _seen(place, proxies) == client


async def _seen(place: Path, proxies: tuple[str, ...]) -> str:
    """The address that an application is told."""
    config = configuration(_tells, proxies)
    config.lifespan = "off"
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listen(f"unix:{place}")]))
    async with asyncio.timeout(patience(10)):
        reader, writer = await asyncio.open_unix_connection(str(place))
        writer.write(_REQUEST)
        answer = await reader.read()
        writer.close()
        server.should_exit = True
        await serving
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])[0])


async def _tells(scope: Any, receive: Any, send: Any) -> None:
    body = json.dumps(scope["client"]).encode()
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
