"""A web server that answers as it is told, or not at all: for what real programs do only when they are broken."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

OK = b"HTTP/1.1 200 OK\r\n\r\n"
_FOREVER = 600.0  # seconds: longer than any test


class OddPages:
    """Each page has a port of its own. None: it takes the question and stays silent."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._listeners: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # at once, though another thread waits on it
            listener.close()
        for thread in self._threads:
            thread.join(5)

    def page(self, answer: bytes | None, *, drip: float = 0.0) -> str:
        """Its address. `drip`: seconds between two bytes."""
        listener = socket.create_server(("127.0.0.1", 0))
        self._listeners.append(listener)
        self._begin(self._serve, listener, answer, drip)
        return f"http://127.0.0.1:{listener.getsockname()[1]}/metrics"

    def _begin(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _serve(self, listener: socket.socket, answer: bytes | None, drip: float) -> None:
        while not self._ended.is_set():
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            self._begin(self._answer, peer, answer, drip)

    def _answer(self, peer: socket.socket, answer: bytes | None, drip: float) -> None:
        with peer, contextlib.suppress(OSError):
            peer.settimeout(_FOREVER)
            peer.recv(65536)
            if answer is None:
                peer.recv(1)  # until whoever asks gives up
                return
            for byte in answer if drip else ():
                if self._ended.wait(drip):
                    return
                peer.sendall(bytes([byte]))
            if not drip:
                peer.sendall(answer)
