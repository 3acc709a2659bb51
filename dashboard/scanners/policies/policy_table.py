"""Presents all policies in one table: first those of all queues, then each queue, those with their own policy first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse

from dashboard.actions.action_request import InvalidRequest
from dashboard.scanners.policies.queue_summary import scanners_of
from recovery.config import Config
from recovery.domain.identifiers import QueueRef, printable, slug, unslug
from recovery.domain.policies.policy_layers import DUTY, NOTE, PolicySource, PolicyValueOrigin, ResolvedPolicy
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.queues.types import LibraryVersion, Snapshot
from recovery.domain.time_units import age
from recovery.reads.policies.queries import PolicySnapshot
from recovery.reads.scanners import rights_refusals

SIZE = 25  # rows on a page, as a queue's lists begin with
_NO_NOTE = "enabled, but the idempotency note is not set"
_NAME_LIMIT = 4096  # characters of an address


@dataclass(frozen=True, slots=True, order=True)
class PolicyTarget:
    """Target of a policy. `deployment` "": any, `base` "": all queues."""

    deployment: str = ""
    base: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> PolicyTarget:
        """Reads `?deployment=main` or `?queue=main/bull:mail`; neither: everywhere. Raises NotUnderstood."""
        queue = asked.get("queue", "")
        if not queue:
            return cls(asked.get("deployment", ""))
        deployment, slash, base = queue[:_NAME_LIMIT].partition("/")
        try:
            if slash and base:
                return cls(deployment, unslug(base))
        except ValueError:
            pass
        raise InvalidRequest("The URL names no queue. Check that the URL is complete.")

    @property
    def ref(self) -> QueueRef:
        return QueueRef(self.deployment, self.base)

    @property
    def label(self) -> str:
        return printable(self.base or self.deployment) or "all queues"

    @property
    def words(self) -> str:
        """Name of the target for use in a sentence."""
        if self.base:
            return printable(self.base) + (
                f" in {printable(self.deployment)}" if self.deployment else " in any deployment"
            )
        return f"all queues of {printable(self.deployment)}" if self.deployment else "all queues"

    @property
    def address(self) -> str:
        """URL of the page that edits it."""
        told = {"queue": f"{self.deployment}/{slug(self.base)}"} if self.base else {"deployment": self.deployment}
        asked = urlencode({name: value for name, value in told.items() if value}, safe="/:")
        return reverse("policy-edit") + (f"?{asked}" if asked else "")


@dataclass(frozen=True, slots=True)
class PolicyTableCell:
    """Policy of one scanner for one target. `state`: enabled, dry-run; "" where it has nothing to check."""

    scanner: str
    state: str = ""
    words: str = ""
    origin: str = ""  # "" for what is by default
    warning: str = ""


@dataclass(frozen=True, slots=True)
class PolicyTableRow:
    place: PolicyTarget
    queue_url: str  # "" for what is no single queue that we know
    cells: tuple[PolicyTableCell, ...]
    note: str = ""  # why the jobs are idempotent, where that is said for this very place
    is_withheld: bool = False  # an edit cannot be read, so nothing acts


@dataclass(frozen=True, slots=True)
class PolicyTable:
    rows: tuple[PolicyTableRow, ...]
    matching: int
    before: int | None = None  # where the previous page begins
    after: int | None = None
    scanners: tuple[PolicyScanner, ...] = tuple(PolicyScanner)


def table(
    book: PolicySnapshot, snapshot: Snapshot | None, config: Config, now: int, *, term: str = "", start: int = 0
) -> PolicyTable:
    """Returns one page of the table. `term`: only targets whose names contain it."""
    known, own = flavours(snapshot), _own(book)
    places = [place for place in _places(own, known, config) if term.casefold() in place.words.casefold()]
    start = min(start, max(0, len(places) - 1)) // SIZE * SIZE
    listed = places[start : start + SIZE]
    rows = tuple(_row(place, book.of(place.ref), known.get(place.ref), config, now) for place in listed)
    return PolicyTable(
        rows,
        len(places),
        start - SIZE if start else None,
        start + SIZE if start + SIZE < len(places) else None,
    )


def count_enabled_queues(
    book: PolicySnapshot, known: Mapping[QueueRef, LibraryVersion], config: Config
) -> dict[PolicyScanner, tuple[int, int]]:
    """Returns per scanner the number of queues in which it may act, and of those that it checks."""
    own, common = _own(book), dict[str, ResolvedPolicy]()
    counts = {scanner: [0, 0] for scanner in PolicyScanner}
    for ref, flavour in known.items():
        if {PolicyTarget(ref.deployment, ref.base), PolicyTarget("", ref.base)} & own:
            found = book.of(ref)
        else:  # of queues without a policy of their own one stands for all
            general = QueueRef(ref.deployment, "")
            found = common.get(ref.deployment) or common.setdefault(ref.deployment, book.of(general))
        is_free = not _barred(ref.deployment, flavour, config)
        for scanner in filter(lambda scanner: _concerns(scanner, flavour), PolicyScanner):
            counts[scanner][0] += is_free and found.policy.may_act(scanner)
            counts[scanner][1] += 1
    return {scanner: (count[0], count[1]) for scanner, count in counts.items()}


def flavours(snapshot: Snapshot | None) -> dict[QueueRef, LibraryVersion]:
    return {sample.ref: sample.flavour for sample in snapshot.queues} if snapshot else {}


def _concerns(scanner: PolicyScanner, flavour: LibraryVersion | None) -> bool:
    """Returns True if the scanner checks queues of this library; None: an unknown one, so any scanner may."""
    return flavour is None or scanner in scanners_of(flavour)


def _barred(deployment: str, flavour: LibraryVersion | None, config: Config) -> str:
    """Returns why no scanner may act there, whatever the policy says; "" if one may."""
    if any(place.read_only for place in config.places if place.name == deployment):
        return "the deployment is read-only"
    if rights_refusals.of_deployment(deployment, rights_refusals.newest()):
        return "the Redis user of the deployment has no write permission"
    return "read-only: its library or version is not supported" if flavour and flavour.read_only else ""


def _own(book: PolicySnapshot) -> frozenset[PolicyTarget]:
    origins = [layer.origin for layer in book.layers] + [row.origin for row in book.unread]
    return frozenset(PolicyTarget(origin.deployment, origin.base) for origin in origins)


def _places(
    own: frozenset[PolicyTarget], known: Mapping[QueueRef, LibraryVersion], config: Config
) -> list[PolicyTarget]:
    many = [PolicyTarget(deployment.name) for deployment in config.places] if len(config.places) > 1 else []
    wide = sorted({*many, *(place for place in own if place.deployment and not place.base)})
    queues = {PolicyTarget(ref.deployment, ref.base) for ref in known} | {place for place in own if place.base}
    return [PolicyTarget(), *wide, *sorted(queues, key=lambda place: (place not in own, place.base, place.deployment))]


def _row(
    place: PolicyTarget, found: ResolvedPolicy, flavour: LibraryVersion | None, config: Config, now: int
) -> PolicyTableRow:
    barred = _barred(place.deployment, flavour, config)
    cells = (
        _cell(scanner, found, place, barred, now) if _concerns(scanner, flavour) else PolicyTableCell(scanner.value)
        for scanner in PolicyScanner
    )
    return PolicyTableRow(
        place,
        reverse("queue", args=[place.deployment, place.base]) if flavour else "",
        tuple(cells),
        printable(found.policy.idempotency) if _is_of(found.origin(NOTE), place) else "",
        bool(found.withheld),
    )


def _cell(scanner: PolicyScanner, found: ResolvedPolicy, place: PolicyTarget, barred: str, now: int) -> PolicyTableCell:
    policy, duty = found.policy, found.policy.duty(scanner)
    acts = policy.may_act(scanner)
    words = [f"after {age(duty.after)}"] if duty.after else []
    words.append(f"max {duty.most:,} per run")
    words += ["releases locks"] if duty.release else []
    return PolicyTableCell(
        scanner.value,
        "enabled" if acts and not barred else "dry-run",
        ", ".join(words),
        _origin(_narrowest(found, scanner), place, now),
        barred if acts else _NO_NOTE if policy.lacks_note(scanner) else "",
    )


def _narrowest(found: ResolvedPolicy, scanner: PolicyScanner) -> PolicyValueOrigin:
    """Returns the origin of those of a scanner's settings that were set nearest to the queue."""
    return max((found.origin(scanner.field, name) for name in DUTY), key=lambda origin: origin.rank)


def _origin(origin: PolicyValueOrigin, place: PolicyTarget, now: int) -> str:
    """Says where a value was set; one that comes from a wider target is said in three words."""
    if origin.source is PolicySource.DEFAULT:
        return ""
    if _is_of(origin, place):
        return "from the file" if origin.source is PolicySource.FILE else _by(origin, now)
    return f"from {PolicyTarget(origin.deployment, origin.base).words}"


def _is_of(origin: PolicyValueOrigin, place: PolicyTarget) -> bool:
    return PolicyTarget(origin.deployment, origin.base) == place


def _by(origin: PolicyValueOrigin, now: int) -> str:
    said = f"by {printable(origin.by) or 'an unknown user'}"
    return said if origin.at is None else f"{said}, {age(now - origin.at)} ago"
