"""Detects other consoles on the same Redis: the leader announces itself on each deployment and learns if it may act.

It announces itself where jobs are lost, or where it is about to act, and from then on. Elsewhere it only reads what
others announce: watching alone writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import redis

from recovery.backends.redis_common import consoles as told
from recovery.domain.identifiers import printable
from recovery.domain.scheduler import consoles
from recovery.domain.scheduler.consoles import Console
from recovery.errors import StoreError
from recovery.shared_clock import steady
from recovery.stores.registry import ConnectionRegistry

log = logging.getLogger(__name__)

EVERY = 3.0  # seconds
_TRUSTED = 0.85  # of the TTL of our own announcement: it stands there that much longer
_AT_ONCE = 8  # deployments
_UNKNOWN = "It is not yet known whether another console acts on {deployment}."


@dataclass(frozen=True, slots=True)
class _Seen:
    """Last answer of one deployment. `refused`: it does not let us announce, so only the fence of each queue counts."""

    at: float
    all: tuple[Console, ...] = ()
    refused: bool = False


class OtherConsoles:
    """Announces this console during one term of the leader. `run` is called by one thread, the rest from any."""

    def __init__(self, registry: ConnectionRegistry, installation: str, host: str, pid: int, since: int) -> None:
        self._registry = registry
        self._me = Console("", installation, host, pid, since, acts=False)
        self._names = [one.name for one in registry.config.deployments if not one.read_only]
        self._speaks: set[str] = set()  # deployments
        self._seen: dict[str, _Seen] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="consoles")

    def run(self, _now: int, lost_at: Collection[str] = ()) -> None:
        """Announces or reads on all deployments at once. `lost_at`: deployments with lost jobs, where it announces."""
        self._speaks.update(lost_at)
        list(self._pool.map(self._look, self._names))

    def close(self) -> None:
        """Stops the threads; announcements stay, so that a scheduler that restarts soon is still the one that acts."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def others(self) -> tuple[Console, ...]:
        """Returns the consoles of other installations that were seen within the lifetime of an announcement."""
        now = steady()
        return tuple(
            one
            for seen in self._seen.values()
            if now - seen.at < consoles.LIFE / 1000
            for one in seen.all
            if one.installation != self._me.installation
        )

    def rival(self, deployment: str) -> str:
        """Returns why this console must not act on the deployment; "" if it may. Checked right before each action."""
        if deployment not in self._names:
            return ""
        if deployment not in self._speaks:
            self._speaks.add(deployment)
            self._look(deployment)
        seen = self._seen.get(deployment)
        if seen is None:
            return _UNKNOWN.format(deployment=printable(deployment))
        if seen.refused:
            return ""
        acting = next((one for one in seen.all if one.acts), None)
        if acting is not None and acting.installation != self._me.installation:
            return f"{acting.words} {acting.meaning}"
        is_sure = steady() - seen.at < consoles.LIFE / 1000 * _TRUSTED
        return "" if is_sure else _UNKNOWN.format(deployment=printable(deployment))

    def _look(self, name: str) -> None:
        asked = steady()
        try:
            wire = self._registry.wire(name)
            me = replace(self._me, deployment=name)
            seen = _Seen(asked, told.announce(wire, me) if name in self._speaks else told.read(wire))
        except StoreError as error:
            log.debug("%s: cannot check whether another console acts there: %s", name, error)
            return
        except redis.ResponseError as refusal:
            seen = _Seen(asked, refused=True)
            if name not in self._seen or not self._seen[name].refused:
                log.warning("%s: cannot check for other consoles there: %s", name, refusal)
        self._tell(name, seen)
        self._seen[name] = seen

    def _tell(self, name: str, seen: _Seen) -> None:
        before = self._seen[name].all if name in self._seen else ()
        for one in seen.all:
            if one.installation != self._me.installation and one not in before:
                log.warning("%s %s", one.words, one.meaning)


def rival_console(registry: ConnectionRegistry, installation: str, deployment: str) -> str:
    """Returns why this installation does not act on the deployment, for a run by hand, which announces nothing."""
    if deployment not in {one.name for one in registry.config.deployments}:
        return ""
    try:
        found = told.read(registry.wire(deployment))
    except (StoreError, redis.ResponseError):
        return ""  # the fence of each queue stands all the same
    acting = next((one for one in found if one.acts and one.installation != installation), None)
    return f"{acting.words} {acting.meaning}" if acting else ""
