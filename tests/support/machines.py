"""Programs for tests of the API: a client with a token of these scopes."""

from __future__ import annotations

import json
from typing import Any

from django.http import HttpResponse
from django.test import Client

from dashboard.accounts import tokens
from dashboard.accounts.token_scopes import TokenScope

ROOT = "/api/v1"


class Machine:
    """Sends a token with every call; without scopes it has none. `says` holds the last answer."""

    def __init__(self, *scopes: TokenScope, name: str = "machine") -> None:
        self.token = ""
        if scopes:
            kept = tokens.MachineToken.objects.filter(name=name)
            kept.delete()
            self.kept, self.token = tokens.make(name, frozenset(scopes), 1, None)
        self._client = Client(raise_request_exception=False, enforce_csrf_checks=True)

    def get(self, path: str, **query: Any) -> HttpResponse:
        return self.send("GET", path, query=query)

    def post(self, path: str, body: Any = None) -> HttpResponse:
        return self.send("POST", path, body=body)

    def send(self, method: str, path: str, *, body: Any = None, query: dict[str, Any] | None = None) -> HttpResponse:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        address = path if path.startswith("/") else f"{ROOT}/{path}"
        return self._client.generic(
            method, address, data, "application/json", headers=headers, query_params=query or None
        )


def told(answer: HttpResponse, status: int = 200) -> Any:
    """What a good answer says."""
    assert answer.status_code == status, answer.content.decode()
    assert answer["Content-Type"].startswith("application/json")
    return json.loads(answer.content)


def refused(answer: HttpResponse, status: int, code: str) -> dict[str, str]:
    """The one shape of a failure, with this status and this code."""
    body = told(answer, status)
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "advice"}
    assert body["error"]["code"] == code, body
    assert body["error"]["message"]
    assert "Traceback" not in answer.content.decode()
    found: dict[str, str] = body["error"]
    return found
