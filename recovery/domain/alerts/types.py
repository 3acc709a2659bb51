"""Keeps the state of each alert from begin to end, and what each notification channel was sent about it.

Pure: the findings of a check come in; the alerts after it come out, and which event each channel has to be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256

from recovery.domain.identifiers import encode_name, printable
from recovery.domain.redaction import redact
from recovery.domain.time_units import DAY, MINUTE, SECOND

WORDS_LIMIT = 500  # characters: what fits on a phone's lock screen is far less
KEY_LIMIT = 200  # characters of what an alert is about; a longer one is cut and ends in its digest
WORSE = 2  # times as many jobs as in the last message: so at most log2(jobs) messages
WORSE_AFTER = MINUTE
# An attempt ends within five seconds. The process that began one this long ago has died, and its result is unknown.
TRYING_FOR = 15 * SECOND
GIVE_UP = DAY  # ms after its end: a channel that could not be reached until then is not notified


class AlertKind(StrEnum):
    """Kinds of problems that can be sent as an alert."""

    ABANDONED = "abandoned"  # jobs that nothing will rescue
    QUARANTINE = "quarantine"  # jobs that only a person touches
    BREAKER = "breaker"
    PAUSE = "pause"  # auto-recovery is paused for a deployment
    GATE = "gate"  # closed for long
    N8N = "n8n"  # jobs and executions that contradict each other, or cannot be compared
    UNREADABLE = "unreadable"  # a deployment, or queues of it
    SCANNER = "scanner"  # an enabled one whose store denies it write permission
    CONSOLE = "console"  # another console leads on the same Redis
    AUDIT = "audit"  # heads of its chain cannot be sent to their targets
    SCHEDULER = "scheduler"  # no scheduler leads; sent by the web processes


class AlertEvent(StrEnum):
    """Event of an alert that a message reports."""

    FIRING = "firing"
    WORSE = "worse"
    REMINDER = "reminder"
    RESOLVED = "resolved"
    TEST = "test"


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Settings of alerts, in milliseconds. `again` None: no reminders. `most`: messages per channel in any minute."""

    kinds: frozenset[AlertKind] = frozenset(AlertKind)
    after: int = 30 * SECOND
    gate_after: int = 10 * MINUTE
    calm: int = MINUTE
    again: int | None = 240 * MINUTE
    most: int = 10

    def after_of(self, kind: AlertKind) -> int:
        """Returns how long a problem has to last before it is sent. A lease that changes hands takes seconds, and is no
        news.
        """
        if kind is AlertKind.GATE:
            return self.gate_after
        return max(self.after, 30 * SECOND) if kind is AlertKind.SCHEDULER else self.after


@dataclass(frozen=True, slots=True)
class AlertFinding:
    """Problem as a check saw it. `key`: its subject, which begins with a deployment. `link`: a page of ours."""

    kind: AlertKind
    key: str
    words: str
    link: str
    size: int = 1
    since: int | None = None  # None: not known, so since this check


@dataclass(frozen=True, slots=True)
class AlertCheck:
    """Result of one check. `known`: kinds that could be checked. `silent` deployments, `unseen` gates and n8n
    mismatches in `uncompared` are unknown right now.

    What is not known is neither new nor over.
    """

    at: int
    findings: tuple[AlertFinding, ...] = ()
    known: frozenset[AlertKind] = frozenset(AlertKind)
    silent: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()
    uncompared: frozenset[str] = frozenset()

    def knows(self, kind: AlertKind, key: str) -> bool:
        if kind is AlertKind.GATE:
            return kind in self.known and key not in self.unseen
        if kind is AlertKind.N8N and key.rpartition("/")[0] in self.uncompared:
            return False
        return kind in self.known and (kind is AlertKind.UNREADABLE or key.partition("/")[0] not in self.silent)


@dataclass(frozen=True, slots=True)
class AlertDelivery:
    """Last message that one channel was sent. `trying`: since when a process has been sending it the next one."""

    event: AlertEvent | None = None
    at: int = 0
    size: int = 0
    count: int = 0  # messages until now
    trying: int | None = None

    @property
    def may_know(self) -> bool:
        """Returns True if the channel may have received a message: an attempt whose end is unknown may have arrived."""
        return self.trying is not None or self.event not in (None, AlertEvent.RESOLVED)


@dataclass(frozen=True, slots=True)
class AlertRecord:
    """An alert. `number`: its row in the database; None while it has none."""

    kind: AlertKind
    key: str
    words: str
    link: str
    size: int
    since: int
    seen_at: int
    resolved_at: int | None = None
    heard: Mapping[str, AlertDelivery] = field(default_factory=dict, hash=False)
    number: int | None = None

    def is_ripe(self, terms: AlertSettings) -> bool:
        """Returns True if the problem has lasted for long enough to be sent."""
        return self.seen_at - self.since >= terms.after_of(self.kind)

    def by(self, channel: str) -> AlertDelivery:
        return self.heard.get(channel, AlertDelivery())

    def with_heard(self, channel: str, heard: AlertDelivery) -> AlertRecord:
        return replace(self, heard={**self.heard, channel: heard})

    def told(self, channel: str, event: AlertEvent, at: int) -> AlertRecord:
        return self.with_heard(channel, AlertDelivery(event, at, self.size, self.by(channel).count + 1))

    def name(self, channel: str) -> str:
        """Returns the id of the next message about this alert; the same on a repeated attempt, so that receivers can
        tell.
        """
        digest = sha256(encode_name(f"{self.kind} {self.key}")).hexdigest()[:12]
        return f"{digest}.{self.since}.{self.by(channel).count + 1}"


def storage_key(key: str) -> str:
    """Returns the key as it is stored in the database: printable, and a long one cut and followed by its digest."""
    said = printable(key)
    return said if len(said) <= KEY_LIMIT else f"{said[:KEY_LIMIT]}~{sha256(encode_name(key)).hexdigest()[:32]}"


def redact_words(words: str) -> str:
    """Returns the text without secrets, in one line, and of bounded length."""
    said = printable(redact.text(" ".join(words.split())))
    return said if len(said) <= WORDS_LIMIT else f"{said[: WORDS_LIMIT - 1]}…"


def alerts_after_check(
    standing: Iterable[AlertRecord], look: AlertCheck, terms: AlertSettings, began: int
) -> Iterator[AlertRecord]:
    """Yields all alerts as they are after a check. `began`: since when the process has been checking.

    An alert is resolved when its problem was not seen for a while, and checks ran all the while.
    """
    found = {(one.kind, storage_key(one.key)): one for one in look.findings if one.kind in terms.kinds}
    for alert in standing:
        seen = found.pop((alert.kind, alert.key), None) if alert.resolved_at is None else None
        yield _seen(alert, seen, look.at) if seen else _missed(alert, look, terms, began)
    for (_, key), one in found.items():
        since = look.at if one.since is None else min(one.since, look.at)
        yield AlertRecord(one.kind, key, redact_words(one.words), one.link, one.size, since, look.at)


def next_event(alert: AlertRecord, channel: str, terms: AlertSettings, at: int) -> AlertEvent | None:
    """Returns the event that this channel has to be sent now, or None."""
    heard = alert.by(channel)
    if alert.resolved_at is not None:
        return AlertEvent.RESOLVED if heard.may_know and at - alert.resolved_at < GIVE_UP else None
    if heard.event is None:
        return AlertEvent.FIRING if alert.is_ripe(terms) else None
    if alert.size >= WORSE * heard.size and at - heard.at >= WORSE_AFTER:
        return AlertEvent.WORSE
    if terms.again is not None and at - heard.at >= terms.again:
        return AlertEvent.REMINDER
    return None


def is_free(heard: AlertDelivery, at: int) -> bool:
    """Returns True if no process is sending to this channel."""
    return heard.trying is None or abs(at - heard.trying) >= TRYING_FOR


def _seen(alert: AlertRecord, found: AlertFinding, at: int) -> AlertRecord:
    since = alert.since if found.since is None else min(alert.since, found.since)
    return replace(alert, words=redact_words(found.words), link=found.link, size=found.size, since=since, seen_at=at)


def _missed(alert: AlertRecord, look: AlertCheck, terms: AlertSettings, began: int) -> AlertRecord:
    if alert.resolved_at is not None:
        return alert
    is_dropped = alert.kind not in terms.kinds
    missed_for = look.at - max(alert.seen_at, began)
    if is_dropped or (look.knows(alert.kind, alert.key) and missed_for >= terms.calm):
        return replace(alert, resolved_at=look.at)
    return alert
