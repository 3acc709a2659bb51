"""ACL of one monitor's user in the state store: the keys it may touch, and with which commands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from recovery.domain.identifiers import decode_name, slug
from recovery.stores.state import state_keys

MEASURING = (
    *("time", "hmget", "hgetall", "del", "hset", "pexpire", "setrange", "expire", "multi", "exec"),
    *("discard", "ping", "select"),
)
SHIPPING = ("watch", "unwatch", "hget", "hdel", "xadd", "xtrim", "xlen")  # for log lines
_WRITES = ("~", "%RW~", "%W~")
_ALL_SERVERS = ("worker-monitor:*", "worker-monitor*")


@dataclass(frozen=True, slots=True)
class WideAclUser:
    """A user of the state store that may write keys of more than one server."""

    name: str
    pattern: str


def pattern(server: str) -> str:
    """Returns a pattern for all keys of this server and no others; nothing in it is special to the store."""
    return decode_name(state_keys.server_prefix(server)) + "*"


def user(server: str) -> str:
    """Returns the name of a monitor's user: one word, as an ACL takes it."""
    return f"monitor-{slug(server)}"


def rule(server: str, password: str = "SECRET") -> str:  # noqa: S107 -- a placeholder
    """Returns the command that makes the user, without a line break."""
    commands = " ".join(f"+{command}" for command in (*MEASURING, *SHIPPING))
    return f"ACL SETUSER {user(server)} reset on >{password} resetchannels ~{pattern(server)} {commands}"


def too_wide(lines: Iterable[str]) -> Iterator[WideAclUser]:
    """Yields users of `ACL LIST` with a pattern over the keys of all servers, but not ours, which has all keys."""
    for line in lines:
        words = line.split()
        if words[:1] != ["user"] or "on" not in words[2:3]:
            continue
        for word in words:
            prefix = next((one for one in _WRITES if word.startswith(one)), "")
            if prefix and word.removeprefix(prefix) in _ALL_SERVERS:
                yield WideAclUser(words[1], word)
                break
