"""Tells whether a request comes from this machine itself, as far as that can be proven."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

# A peer that sends one of these is a proxy, and its client may be anywhere.
_OF_PROXIES = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"}
)
_OWN_PAGES = frozenset({b"none", b"same-origin"})
_NAME = "localhost"


def is_local(scope: Mapping[str, Any]) -> bool:
    """Returns True if the peer is on loopback, no proxy forwarded the request, and its Host is a name of this machine
    itself: a page of another site, whose name was made to resolve to this machine, sends that name.

    A peer on a unix socket is a proxy too; our server gives it the port 0.
    """
    host, port = scope.get("client") or ("", 0)
    headers = [(name.lower(), value) for name, value in scope["headers"]]
    if not port or not _is_loopback(host) or any(name in _OF_PROXIES for name, _ in headers):
        return False
    if any(value not in _OWN_PAGES for name, value in headers if name == b"sec-fetch-site"):
        return False  # a browser here, led by a page of another site
    asked = [value.decode("latin-1") for name, value in headers if name == b"host"]
    return len(asked) == 1 and is_own(asked[0])


def is_own(host: str) -> bool:
    """Returns True when this `name`, `name:port` or address means the machine that uses it."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    return name.lower() == _NAME or _is_loopback(name.strip("[]"))


def _is_loopback(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
