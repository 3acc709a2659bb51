"""Whoever takes messages: a web server and a mail server on loopback, which answer as told and keep what came."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HANG, RESET, DRIP = "hang", "reset", "drip"
_GIVES_UP = 30.0  # seconds: nobody waits for it; the test lets it go
Answer = int | str | tuple[int, dict[str, str]] | Callable[[], int]


@dataclass(frozen=True, slots=True)
class Posted:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def told(self) -> Any:
        return json.loads(self.body)


class Hooked:
    """A web server. `answers`: what it does with the next requests, then 200. `posted`: all that came."""

    def __init__(self, tls: Path | None = None) -> None:
        self.answers: list[Answer] = []
        self.posted: list[Posted] = []
        self.released = threading.Event()
        self._server = _HttpServer(("127.0.0.1", 0), _Http)
        self._server.owner = self
        self.scheme = "http"
        if tls:
            self.scheme = "https"
            self._server.socket = _secured(tls).wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/hooks/T0/s3cr3t"

    @property
    def titles(self) -> list[str]:
        return [one.told["title"] for one in self.posted]

    def events(self, kind: str = "") -> list[str]:
        return [told["event"] for told in (one.told for one in self.posted) if not kind or kind in _kinds(told)]

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _HttpServer(ThreadingHTTPServer):
    owner: Hooked
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever hangs up early is what some tests are about."""


class _Http(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        owner = self.server.owner  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        owner.posted.append(Posted(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        self._answer(owner, owner.answers.pop(0) if owner.answers else 200)

    def _answer(self, owner: Hooked, answer: Answer) -> None:
        if callable(answer):
            answer = answer()
        if answer == RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
            return
        if answer == HANG:
            owner.released.wait(_GIVES_UP)
            return
        if answer == DRIP:
            with contextlib.suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not owner.released.wait(0.05):
                    self.wfile.write(b"x")
            return
        status, headers = answer if isinstance(answer, tuple) else (int(answer), {})
        said = b"" if status == 200 else b"no_service: token=s3cr3t-of-the-answer"
        self.send_response(status)
        for name, value in {"Content-Length": str(len(said)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@dataclass(slots=True)
class Letter:
    sender: str = ""
    to: list[str] = field(default_factory=list)
    login: str = ""
    is_encrypted: bool = False
    message: EmailMessage = field(default_factory=EmailMessage)

    @property
    def text(self) -> str:
        return str(self.message.get_content())


class Posts:
    """A mail server. `hang_at`: the word at which it falls silent; `refuse`: word → what it answers to it."""

    def __init__(self, tls: Path | None = None, *, implicit: bool = False) -> None:
        self.letters: list[Letter] = []
        self.refuse: dict[str, str] = {}
        self.hang_at = ""
        self.released = threading.Event()
        self.tls, self.implicit = _secured(tls) if tls else None, implicit
        self._server = _SmtpServer(("127.0.0.1", 0), _Smtp)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _SmtpServer(socketserver.ThreadingTCPServer):
    owner: Posts
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """As above."""


class _Smtp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.owner: Posts = self.server.owner  # type: ignore[attr-defined]
        self.letter = Letter()
        if self.owner.implicit and self.owner.tls:
            self._encrypt(self.owner.tls)
        try:
            self._talk()
        finally:
            self.connection.close()

    def _talk(self) -> None:
        self._say("220 test")
        while line := self.rfile.readline().decode().strip():
            word = line.split()[0].upper()
            if word == self.owner.hang_at:
                self.owner.released.wait(_GIVES_UP)
                return
            if word in self.owner.refuse:
                self._say(self.owner.refuse[word])
            elif word == "QUIT":
                self._say("221 bye")
                return
            else:
                self._do(word, line)

    def _do(self, word: str, line: str) -> None:
        match word:
            case "EHLO":
                offers = ["250-test", *(["250-STARTTLS"] if self.owner.tls and not self.letter.is_encrypted else [])]
                self._say(*offers, "250-AUTH PLAIN", "250 8BITMIME")
            case "STARTTLS" if self.owner.tls:
                self._say("220 go on")
                self._encrypt(self.owner.tls)
            case "AUTH":
                self.letter.login = base64.b64decode(line.split()[2]).decode()
                self._say("235 welcome")
            case "MAIL":
                self.letter.sender = line.partition("<")[2].partition(">")[0]
                self._say("250 ok")
            case "RCPT":
                self.letter.to.append(line.partition("<")[2].partition(">")[0])
                self._say("250 ok")
            case "DATA":
                self._say("354 go on")
                self._take()
            case _:
                self._say("250 ok")

    def _take(self) -> None:
        lines = iter(self.rfile.readline, b".\r\n")
        self.letter.message = message_from_bytes(b"".join(lines), policy=policy.default)  # type: ignore[assignment]
        self.owner.letters.append(self.letter)
        if self.owner.hang_at == "DATA-END":
            self.owner.released.wait(_GIVES_UP)
            return
        self._say("250 taken")

    def _encrypt(self, context: ssl.SSLContext) -> None:
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.setup_files()
        self.letter.is_encrypted = True

    def setup_files(self) -> None:
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)

    def _say(self, *lines: str) -> None:
        self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())


@contextlib.contextmanager
def hooked(tls: Path | None = None) -> Iterator[Hooked]:
    made = Hooked(tls)
    try:
        yield made
    finally:
        made.close()


@contextlib.contextmanager
def posts(tls: Path | None = None, *, implicit: bool = False) -> Iterator[Posts]:
    made = Posts(tls, implicit=implicit)
    try:
        yield made
    finally:
        made.close()


def _secured(directory: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "server.crt", directory / "server.key")
    return context


def _kinds(told: Any) -> list[str]:
    return [alert["kind"] for alert in told["alerts"]]
