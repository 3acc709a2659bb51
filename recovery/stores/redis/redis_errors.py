"""Translates errors of the system, of TLS and of Redis into the tree of errors.py."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import redis
import redis.asyncio

from recovery.config.addresses.redis_urls import hidden
from recovery.domain.identifiers import visible
from recovery.errors import (
    AccessDenied,
    Garbled,
    NotReady,
    ReadOnlyStore,
    StoreError,
    TimedOut,
    TlsMismatch,
    Unreachable,
    WritesRefused,
)

__all__ = ["from_redis", "from_system", "guarded", "hidden", "refusal", "store_wide", "target_of"]

# A command's own error, as it stays in the list of replies. Every one is a ResponseError.
_REFUSALS: dict[str, type[redis.ResponseError]] = {
    "NOPERM": redis.exceptions.NoPermissionError,
    "NOSCRIPT": redis.exceptions.NoScriptError,
    "READONLY": redis.exceptions.ReadOnlyError,
    "OOM": redis.exceptions.OutOfMemoryError,
    "TRYAGAIN": redis.exceptions.TryAgainError,
    "CROSSSLOT": redis.exceptions.ClusterCrossSlotError,
}
_REDIRECTS: dict[str, type[redis.exceptions.AskError]] = {
    "MOVED": redis.exceptions.MovedError,
    "ASK": redis.exceptions.AskError,
}
# Codes that speak of the whole store or the whole connection: the other commands fare no better.
_STORE_WIDE: dict[str, tuple[type[StoreError], str]] = {
    "NOAUTH": (AccessDenied, "it requires a password, but none is configured"),
    "WRONGPASS": (AccessDenied, "user or password is wrong, or the user is disabled"),
    "DENIED": (AccessDenied, "it runs in protected mode and accepts only local connections"),
    "LOADING": (NotReady, "it is loading its data from disk"),
    "MASTERDOWN": (NotReady, "it is a replica that has lost its master"),
    "CLUSTERDOWN": (NotReady, "the cluster is down: some slots have no node"),
    "READONLY": (ReadOnlyStore, "it is a read-only replica"),
    "BUSY": (TimedOut, "it is busy with a long script"),
}
_FULL = "max number of clients"


class ReplyTooLarge(redis.ConnectionError):
    """Raised when an answer was larger than any of ours; the rest of it was not read (state_limits.py)."""


def refusal(message: str) -> redis.ResponseError:
    """Returns the exception that stands for an error reply; `status_code` is its first word."""
    message = visible(message)  # it is printed and logged, and the store's owner chose it
    code, _, rest = message.partition(" ")
    if code in _REDIRECTS:
        return _REDIRECTS[code](rest, status_code=code)
    return _REFUSALS.get(code, redis.ResponseError)(message, status_code=code)


def store_wide(error: redis.ResponseError, target: str) -> StoreError | None:
    """Returns the StoreError if this reply condemns more than its own command, else None."""
    if _FULL in str(error):
        return Unreachable(target, "it has reached its client limit (maxclients)")
    found = _STORE_WIDE.get(error.status_code or "")
    return found[0](target, found[1]) if found else None


def from_system(error: Exception, target: str, *, limit: float | None = None) -> StoreError:  # noqa: PLR0911 - a table
    """Translates an error of a socket, of TLS or of name resolution."""
    match error:
        case ssl.SSLCertVerificationError():
            return TlsMismatch(target, f"its certificate was rejected: {error.verify_message or error.reason}")
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ConnectionResetError() | BrokenPipeError():
            return Unreachable(target, "it closed the connection")
        case ssl.SSLError():
            return TlsMismatch(target, _tls_reason(error))
        case TimeoutError():
            within = f" within {limit:g} s" if limit else ""
            return TimedOut(target, f"no answer{within}")
        case socket.gaierror():
            known = error.errno in (socket.EAI_NONAME, socket.EAI_NODATA, None)
            return Unreachable(target, "no such host" if known else "the host name cannot be resolved now")
        case ConnectionRefusedError():
            return Unreachable(target, "connection refused")
        case FileNotFoundError():
            return Unreachable(target, "there is no such socket")
        case OSError():
            return Unreachable(target, (error.strerror or str(error) or type(error).__name__).lower())
    return Garbled(target, f"unexpected {type(error).__name__}")


def _tls_reason(error: ssl.SSLError) -> str:
    reason = (error.reason or "").replace("_", " ").lower()
    if "wrong version number" in reason or "record layer" in reason:
        return "it does not speak TLS here"
    if "certificate required" in reason or "handshake failure" in reason:
        return f"it refused the TLS handshake ({reason}): it may require a client certificate"
    return f"TLS failed: {reason or 'no reason given'}"


def from_redis(error: redis.RedisError, target: str) -> StoreError:  # noqa: C901, PLR0911 - a table
    """Translates an error of redis-py, as our own state store raises it."""
    cause = error.__cause__ or error.__context__
    match error:
        case redis.exceptions.NoPermissionError():
            return AccessDenied(target, visible(str(error)))
        case redis.AuthenticationError():
            return AccessDenied(target, _STORE_WIDE["WRONGPASS"][1])
        case redis.exceptions.BusyLoadingError():
            return NotReady(target, _STORE_WIDE["LOADING"][1])
        case redis.exceptions.OutOfMemoryError():
            return WritesRefused(target, "it is full (maxmemory)")
        case redis.exceptions.ReadOnlyError():
            return ReadOnlyStore(target, _STORE_WIDE["READONLY"][1])
        case redis.ResponseError() if str(error).startswith("MISCONF"):
            return WritesRefused(target, "it cannot save to its disk (MISCONF)")
        case redis.ResponseError():
            return store_wide(error, target) or StoreError(target, visible(str(error)))
        case redis.TimeoutError():
            return TimedOut(target, "no answer in time")
        case ReplyTooLarge():
            return Garbled(target, f"{error}: another program uses one of our keys")
        case redis.ConnectionError():
            return from_system(cause, target) if isinstance(cause, OSError) else Unreachable(target, "hung up")
    return Garbled(target, f"unexpected {type(error).__name__}")


@contextmanager
def guarded(client: redis.Redis | redis.asyncio.Redis) -> Iterator[None]:
    """Wraps calls of a redis-py client, sync or async: what it raises comes out as a StoreError."""
    try:
        yield
    except redis.RedisError as error:
        raise from_redis(error, target_of(client)) from error
    except OSError as error:
        raise from_system(error, target_of(client)) from error


def target_of(client: redis.Redis | redis.asyncio.Redis) -> str:
    """Returns the client's address as a person may see it."""
    known = client.connection_pool.connection_kwargs
    if "path" in known:
        return f"unix://{known['path']}"
    scheme = "rediss" if "ssl_cert_reqs" in known else "redis"
    return f"{scheme}://{known.get('host', 'localhost')}:{known.get('port', 6379)}/{known.get('db') or 0}"
