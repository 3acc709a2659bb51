"""Lines of CLIENT LIST, as a server writes them."""

from __future__ import annotations

from base64 import b64encode

from recovery.domain.identifiers import encode_name


def client(name: str = "", **fields: object) -> bytes:
    """One connection; `cmd`, `addr`, `db`, `sub` and the like are the server's own fields."""
    told = {"id": 7, "addr": "10.0.0.1:5001", "laddr": "10.0.0.9:6379", "fd": 8, "name": name, "age": 12, "idle": 3}
    told |= {"flags": "N", "db": 0, "sub": 0, "psub": 0, "multi": -1, "cmd": "bzpopmin", "user": "default"}
    return b" ".join(encode_name(f"{field}={value}") for field, value in (told | fields).items())


def listing(*clients: bytes) -> bytes:
    return b"\n".join(clients) + b"\n"


def library_name(prefix: str, queue: str) -> str:
    """What Bull and BullMQ call a worker's connection."""
    return f"{prefix}:{b64encode(encode_name(queue)).decode()}"
