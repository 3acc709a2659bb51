"""Parses the address that the web process listens on, and checks whether it is free and whether it answers."""

from __future__ import annotations

import http.client
import socket
from dataclasses import dataclass
from typing import Self

UNIX = "unix:"
EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - recognised, not bound
PORTS = range(1, 1 << 16)
LOOK_FOR = 1.0  # seconds


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """Address to listen on: `host:port`, or the path of a unix socket in `host` and port 0."""

    host: str
    port: int

    @classmethod
    def parse(cls, bind: str) -> Self:
        """Parses UNSTALL_BIND. Raises ValueError with a sentence."""
        if bind.startswith(UNIX):
            return cls(bind.removeprefix(UNIX), 0)
        host, colon, port = bind.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) not in PORTS:
            raise ValueError(f"{bind!r} is not an address. Write host:port, [v6]:port or unix:/path.")
        return cls(host.strip("[]"), int(port))

    @property
    def near(self) -> str:
        """Host by which this machine reaches it."""
        return "127.0.0.1" if self.host in EVERYWHERE else self.host

    @property
    def url(self) -> str:
        """URL for a browser on this machine; for a unix socket a guess, as only the proxy knows it."""
        if not self.port:
            return "http://localhost"
        return f"http://[{self.near}]:{self.port}" if ":" in self.near else f"http://{self.near}:{self.port}"

    def taken(self) -> str:
        """Returns why no process can listen there; "" if it is free. The web process checks a unix socket itself."""
        if not self.port:
            return ""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((self.host, self.port))
                probe.listen()  # bind alone does not see every taken port
            except OSError as error:
                return error.strerror or str(error)
        return ""

    def answers(self, path: str) -> bool:
        try:
            with self._connect() as connected:
                connection = http.client.HTTPConnection("localhost")
                connection.sock = connected
                connection.request("GET", path)
                return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False

    def _connect(self) -> socket.socket:
        if self.port:
            return socket.create_connection((self.near, self.port), LOOK_FOR)
        connected = socket.socket(socket.AF_UNIX)
        connected.settimeout(LOOK_FOR)
        connected.connect(self.host)
        return connected


def origin(public_url: str, bind: str) -> str:
    """Returns the URL of the pages: UNSTALL_PUBLIC_URL, else the URL by which this machine reaches the web process."""
    return public_url or ListenAddress.parse(bind).url
