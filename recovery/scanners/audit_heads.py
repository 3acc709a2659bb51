"""Sends the newest hash of the audit chain to outside targets, so that a restored or rewritten chain is detected.

Somebody who can write the database and has the secret key, or restores an old copy of the database, can show a valid
chain. It is not the one whose heads are kept elsewhere (`manage.py audit compare`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from recovery.actions.audit import head_delivery
from recovery.domain.audit.head_targets import AuditHeadTarget, AuditHeadTargets
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.domain.time_units import DAY, SECOND
from recovery.errors import NotDelivered
from recovery.reads.audit import verification

EVERY = 5.0  # seconds between two checks of what is due
AGAIN = 30 * SECOND  # after a target did not take it


class AuditHeadSender:
    """Sends audit heads during one term of the leader: the first one at once. For one thread at a time."""

    def __init__(self, places: AuditHeadTargets, environment: str = "", may: May = always_leader) -> None:
        self._places = places
        self._environment = environment
        self._may = may
        self._due = dict.fromkeys(places.configured, 0)
        self._sent: dict[AuditHeadTarget, tuple[int, int]] = {}  # number, and when
        self._troubles: dict[AuditHeadTarget, tuple[str, int]] = {}

    @property
    def troubles(self) -> Mapping[AuditHeadTarget, tuple[str, int]] | None:
        """Failed targets with the reason and the time of the first failure; None before each target was tried."""
        return self._troubles if all(self._due.values()) else None

    def run(self, now: int) -> int:
        """Sends the head to each target that is due; returns how many took it. Raises Error of the database."""
        due = [place for place, at in self._due.items() if now >= at]
        if not due or not self._may():
            return 0
        head = verification.head()
        return sum(self._send(place, head, now) for place in due)

    def line(self, head: verification.AuditChainHead, now: int) -> str:
        """Returns the head as one line of JSON, as it is sent."""
        told = {"number": head.number, "hash": head.hash, "at": now}
        return json.dumps(told | ({"environment": self._environment} if self._environment else {}))

    def _send(self, place: AuditHeadTarget, head: verification.AuditChainHead, now: int) -> bool:
        """Sends the head to one target, an unchanged one only once a day, as a sign of life. Returns True if sent."""
        number, at = self._sent.get(place, (None, 0))
        if number == head.number and now - at < DAY:
            self._due[place] = now + self._places.every
            return False
        try:
            head_delivery.send(self._places, place, self.line(head, now), f"audit-head-{head.number}")
        except NotDelivered as error:
            self._troubles[place] = str(error), self._troubles.get(place, ("", now))[1]
            self._due[place] = now + min(AGAIN, self._places.every)
            return False
        self._troubles.pop(place, None)
        self._sent[place] = head.number, now
        self._due[place] = now + self._places.every
        return True
