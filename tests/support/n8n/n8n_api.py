"""n8n's public API as 1.112 and later documents the retry of an execution, over the rows of a yard (n8n_yard.py).

What it does and says was compared with a real 1.123.5 and 2.41.1 (`make test-all`): it makes the new execution at
once and answers when that has ended.
"""

from __future__ import annotations

import json
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.support.n8n.n8n_yard import Yard

KEY = "n8n-api-key-of-the-tests"
HANG, RESET, GARBAGE, HUGE = "hang", "reset", "garbage", "huge"
_PATH = re.compile(r"/api/v1/executions/([0-9]+)/retry")
_GIVES_UP = 30.0  # seconds: the test lets it go before
_REFUSED = {  # by how the execution stands, in the words of 1.123
    "": (404, 'The execution with the ID "{id}" does not exist.'),
    "new": (409, "Execution is queued to run (not yet started) so it cannot be retried"),
    "success": (400, "The execution succeeded, so it cannot be retried."),
}


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    headers: dict[str, str]
    body: Any


class PublicApi:
    """`faults`: what it does with the next requests instead; a number is a status. `made`: the new executions."""

    def __init__(self, yard: Yard, tls: Path | None = None) -> None:
        self.yard = yard
        self.asked: list[Asked] = []
        self.faults: list[int | str] = []
        self.scopes = {"execution:retry"}  # of the key
        self.sees_workflows = True  # the key's user
        self.made: list[str] = []
        self.read: list[str] = []  # what each retry found of the execution's data
        self.meanwhile: Callable[[], object] = lambda: None  # happens when a retry has come, before it is judged
        self.ended = threading.Event()  # of every new execution
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._scheme = "https" if tls else "http"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls / "server.crt", tls / "server.key")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def settings(self) -> str:
        """For [[n8n]]."""
        return f'api = "{self.url}"\napi_key = "{KEY}"\n'

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_address[1]}"

    def judge(self, id: str, key: str) -> tuple[int, str]:
        """Status and sentence; 200: it is retried."""
        is_two = self.yard.release.startswith("2.")
        if key != KEY:
            return 401, "Unauthorized" if is_two else "unauthorized"
        if "execution:retry" not in self.scopes:
            return 403, "Forbidden"
        if id == "0" and self.yard.release == "2.41":  # before it looks what the key's user may see
            return 400, "request/params/executionId must be a positive integer"
        if not self.sees_workflows:
            return 404, "Not Found"
        stands = self.yard.status(id)
        status, said = _REFUSED.get(stands, (200, ""))
        return 409 if is_two and status == 400 else status, said.format(id=id)

    def retry(self, id: str) -> str:
        self.read.append(self.yard.data(id))
        made = self.yard.execution("running", mode="retry")
        self.yard.update(made, retryOf=id)
        self.made.append(made)
        return made


class _Server(ThreadingHTTPServer):
    owner: PublicApi
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever leaves early is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        owner = self.server.owner  # type: ignore[attr-defined]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        owner.asked.append(Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        if owner.faults:
            self._fail(owner, owner.faults.pop(0))
            return
        found = _PATH.fullmatch(self.path)
        if found is None:
            self._say(404, {"message": "not found"})
            return
        owner.meanwhile()
        status, message = owner.judge(found[1], self.headers.get("X-N8N-API-KEY", ""))
        if status != 200:
            self._say(status, {"message": message})
            return
        made = owner.retry(found[1])
        owner.ended.wait(_GIVES_UP)
        with suppress(OSError):
            self._say(200, {"id": made, "mode": "retry", "retryOf": found[1], "status": "success", "finished": True})

    def _fail(self, owner: PublicApi, fault: int | str) -> None:
        match fault:
            case int():
                more = {"Location": "http://127.0.0.1:1/"} if fault == 302 else {}
                self._say(fault, {"message": "token=s3cr3t-of-the-answer is wrong"}, more)
            case "hang":
                owner.ended.wait(_GIVES_UP)
            case "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
            case "garbage":
                self._write(200, b"<html>Welcome to nginx!</html>", {})
            case _:
                self._write(200, b'{"data":"' + b"x" * 5_000_000, {})

    def _say(self, status: int, document: dict[str, Any], more: dict[str, str] | None = None) -> None:
        self._write(status, json.dumps(document).encode(), more or {})

    def _write(self, status: int, said: bytes, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(said)), **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""
