"""Workflows for a real n8n (n8n_real.py), as its editor sends them, and the server that their slow step calls."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import Any, Self


class SlowServer:
    """An HTTP server on loopback whose every answer waits until the test lets it go. Use as a context."""

    def __init__(self) -> None:
        self._asked: list[str] = []
        self._may_go = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._may_go.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def runs(self, execution: str) -> int:
        """How often this execution has begun its step."""
        return self._asked.count(execution)

    def let_go(self) -> None:
        """Whoever waits is answered, and so is whoever comes later."""
        self._may_go.set()

    def renew(self) -> None:
        """Forgets what was asked: the next n8n numbers its executions from 1 again."""
        self._may_go.set()
        self._may_go = threading.Event()
        self._asked.clear()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._asked.append(self.path.strip("/"))
                server._may_go.wait()
                with suppress(OSError):  # a worker that was killed does not wait for it
                    self.send_response(200)
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nobody reads it."""

        return Handler


def workflow(id: str, seconds: int) -> dict[str, Any]:
    """Its webhook answers at once, then it waits in its worker: n8n puts aside only what waits longer than 65 s."""
    parameters = {"resume": "timeInterval", "amount": seconds, "unit": "seconds"}
    return chain(f"Waits {seconds} s", webhook(id), step("Wait", "wait", 1.1, parameters) | {"webhookId": f"{id}-wait"})


def calls(id: str, url: str) -> dict[str, Any]:
    """Its one step calls this address with the number of the execution."""
    return chain("Calls a server", webhook(id), slow_step(url))


def slow_step(url: str) -> dict[str, Any]:
    parameters = {"url": f"={url}/{{{{ $execution.id }}}}", "options": {"timeout": 600_000}}
    return step("Call", "httpRequest", 4.2, parameters)


def webhook(id: str) -> dict[str, Any]:
    parameters = {"path": id, "responseMode": "onReceived", "options": {}}
    return step("Webhook", "webhook", 2, parameters) | {"webhookId": id}


def step(name: str, type: str, version: float, parameters: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"type": f"n8n-nodes-base.{type}", "typeVersion": version}
    return {"id": name, "name": name, **kind, "position": [0, 0], "parameters": parameters}


def chain(name: str, *steps: Mapping[str, Any]) -> dict[str, Any]:
    """A workflow of steps one after the other."""
    names = pairwise(one["name"] for one in steps)
    return {
        "name": name,
        "active": False,
        "nodes": list(steps),
        "connections": {name: {"main": [[{"node": after, "type": "main", "index": 0}]]} for name, after in names},
        "settings": {"executionOrder": "v1"},
        "pinData": {},
    }
