"""Client of n8n's public API for the retry of an execution (n8n 1.112 and later).

n8n answers when the new execution has ended, which may be in hours, so no caller waits for that. It polls n8n's
database meanwhile, and closes the connection when the new execution is there; n8n runs on. Requests go only to the
configured address: no redirect is followed, no proxy of the environment used, and no data of the workflow is kept.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
from dataclasses import dataclass
from typing import Any

import httpx

from recovery.config import N8nInstallation
from recovery.domain.identifiers import printable
from recovery.domain.redaction import redact
from recovery.stores.redis.redis_errors import from_system
from recovery.stores.send_deadline import CancellableSockets

SECONDS = 10.0  # n8n needs some hundred milliseconds to make one
SCOPE = "execution:retry"
_NO_EXECUTION = "0"  # PostgreSQL numbers them from 1
_PATH = "/api/v1"
_LARGEST = 64 * 1024  # bytes read of an answer: it has all data of the new execution, and begins with its id
_SAID = 200  # characters of its error message
_ID = re.compile(rb'\s*\{\s*"id"\s*:\s*"?([1-9][0-9]{0,18})"?\s*[,}]')
_LATE = "n8n does not answer in time."
_NOT_POSITIVE = "executionId must be a positive integer"  # 2.41
_SEES_NOTHING = (
    "The user of n8n's API key sees no workflow: n8n has none yet, or the key must be made by the owner or an admin."
)
_NO_WORKFLOW = "Not Found"  # in capitals; an address that it does not know is "not found"
_WHY = {
    401: "n8n does not accept our API key: set api_key in [[n8n]] to a valid one.",
    403: f"n8n's API key lacks the scope {SCOPE}.",
    429: "n8n rate-limits requests for now.",
}


def lacks(n8n: N8nInstallation) -> str:
    """Returns which setting is missing for requests to n8n; "" when none is."""
    if not n8n.api:
        return "No address of n8n is configured: set editor, or api, in [[n8n]]."
    return "" if n8n.api_key else "No API key of n8n is configured: set api_key_file in [[n8n]]."


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """Answer of n8n about our API key. `trouble` "": it accepts the key and its scope. `is_wrong` False: the key may be
    fine.
    """

    trouble: str = ""
    is_wrong: bool = True


def check_key(n8n: N8nInstallation) -> KeyCheck:
    """Asks n8n to retry execution 0, which no n8n has. n8n checks the key and its scope first, and starts nothing.

    Takes SECONDS at most.
    """
    asked = RetryRequest(n8n, _NO_EXECUTION, latest=False)
    asked.start()
    asked.join(SECONDS)
    trouble, is_accepted = asked.trouble or _LATE, asked.knows_no_such_execution
    asked.leave()
    return KeyCheck() if is_accepted else KeyCheck(trouble, is_wrong=trouble != _SEES_NOTHING)


class RetryRequest(threading.Thread):
    """Thread with one retry request. Start it, look at `id` and `trouble`, and `leave` in any case.

    `is_unsure`: after this trouble n8n may have begun all the same.
    """

    def __init__(self, n8n: N8nInstallation, execution: str, *, latest: bool) -> None:
        super().__init__(name="n8n-retry", daemon=True)
        self.execution = execution
        self.id = ""
        self.trouble = ""
        self.is_unsure = False
        self.knows_no_such_execution = False
        self._n8n = n8n
        self._execution = execution
        base = n8n.api if n8n.api.endswith(_PATH) else n8n.api + _PATH
        self._url = f"{base}/executions/{int(execution)}/retry"
        self._body = {"loadWorkflow": True} if latest else {}
        self._lifeline = CancellableSockets()
        self._was_left = False

    @property
    def is_over(self) -> bool:
        return bool(self.id or self.trouble)

    def leave(self) -> None:
        self._was_left = True
        self._lifeline.cut()
        self._lifeline.close()

    def run(self) -> None:
        try:
            self._ask()
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            if self._was_left:
                return  # the caller closed the connection
            self.is_unsure = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL))
            self.trouble = _words(error)

    def _ask(self) -> None:
        trusted = ssl.create_default_context(cafile=self._n8n.tls_ca or None)
        with (
            httpx.Client(verify=trusted, timeout=SECONDS, follow_redirects=False, trust_env=False) as client,
            client.stream(
                "POST",
                self._url,
                json=self._body,
                headers={"X-N8N-API-KEY": self._n8n.api_key, "Accept-Encoding": "identity", "User-Agent": "unstall"},
                extensions={"trace": self._held},
            ) as response,
        ):
            self._read(response)

    def _held(self, event: str, known: Any) -> None:
        if event == "connection.connect_tcp.complete":
            self._lifeline.hold(known["return_value"].get_extra_info("socket"))

    def _read(self, response: httpx.Response) -> None:
        said = _beginning(response)
        found = _ID.match(said)
        if response.status_code == httpx.codes.OK and found:
            self.id = found[1].decode()
        elif response.status_code == httpx.codes.OK:
            self.is_unsure = True
            self.trouble = "It answers 200, but not like n8n: is api in [[n8n]] the address of n8n?"
        else:
            self.is_unsure = response.is_server_error
            self.trouble = _refusal(response, said)
            self.knows_no_such_execution = self._is_unknown(response, _told(said))

    def _is_unknown(self, response: httpx.Response, told: str) -> bool:
        """Returns True if n8n says that it has no such execution: 1.x names it, 2.x takes no number below 1. A proxy
        says neither.
        """
        if response.status_code == httpx.codes.NOT_FOUND:
            return f'"{self._execution}"' in told
        return response.status_code == httpx.codes.BAD_REQUEST and _NOT_POSITIVE in told


def _beginning(response: httpx.Response) -> bytes:
    read = b""
    for part in response.iter_raw():
        read += part
        if len(read) >= _LARGEST:
            break
    return read[:_LARGEST]


def _refusal(response: httpx.Response, said: bytes) -> str:
    status = response.status_code
    if status in _WHY:
        return _WHY[status]
    reason = f"It answers {status} {httpx.codes.get_reason_phrase(status)}".rstrip()
    if response.is_redirect:
        return f"{reason}, and redirects are not followed: set api in [[n8n]] to the address that it redirects to."
    told = _told(said)
    if status == httpx.codes.NOT_FOUND and told == _NO_WORKFLOW:
        return _SEES_NOTHING
    if status == httpx.codes.NOT_FOUND and told.lower() in ("", "not found"):
        return "Its public API has no retry: that needs n8n 1.112 or later. Or api in [[n8n]] is not its address."
    return f"{reason}: {told}" if told else f"{reason}."


def _told(said: bytes) -> str:
    """Returns n8n's own message, redacted and cut: its text is foreign."""
    try:
        found = json.loads(said)
    except (ValueError, RecursionError):
        return ""
    message = found.get("message") if isinstance(found, dict) else None
    return printable(redact.text(" ".join(str(message or "").split())[:_SAID]))


def _words(error: Exception) -> str:
    """Describes the error without the library's own text, which may hold the address."""
    if isinstance(error, httpx.TimeoutException):
        return _LATE
    cause: BaseException = error
    while (below := cause.__cause__ or cause.__context__) is not None and not isinstance(cause, OSError):
        cause = below
    if isinstance(cause, OSError):
        return f"n8n cannot be reached: {from_system(cause, '').reason}."
    return "n8n closed the connection, or does not speak HTTP."
