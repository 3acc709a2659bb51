"""Verifies the audit: recomputes every hash, follows every link, and checks every seal and every row of the index.

It finds entries that were altered, deleted, inserted or moved, also by an attacker who recomputes hashes; index rows
that do not follow from the entries; and a truncated end. An attacker with write access to the database but without
the secret key can only restore an earlier state of the whole chain: a head that was kept elsewhere reveals that.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from recovery.domain.audit.hash_chain import FIRST
from recovery.errors import UnstallError
from recovery.models import AuditEntry, AuditHead
from recovery.reads.audit import seals
from recovery.reads.audit.chain_entries import AuditChainEntry, walk_entries
from recovery.reads.audit.job_index import AuditIndexCheck

TOLD = 50  # findings reported; a chain that broke once breaks at every later entry
HEADS_LIMIT = 64 * 1024 * 1024  # bytes of a file of kept heads: one every minute for a year
_LOOKED_UP = 500  # entries compared with kept heads at once
AuditChainHeads = Mapping[int, frozenset[str]]  # number → its hashes in kept heads; one, unless the file was altered


class NotAHead(UnstallError):
    """The given text is no exported head."""


@dataclass(frozen=True, slots=True)
class AuditChainHead:
    """End of the chain: kept elsewhere, it proves later that no entry up to here was changed."""

    number: int
    hash: str

    def written(self) -> str:
        return json.dumps({"number": self.number, "hash": self.hash})

    @classmethod
    def read(cls, text: str) -> AuditChainHead:
        try:
            found = json.loads(text)
            return cls(int(found["number"]), str(found["hash"]))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise NotAHead('This is not an audit head. A head looks like {"number": …, "hash": "…"}.') from error


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Problem that an untouched audit cannot have.

    `kind`: altered, deleted, inserted, moved, truncated, forged (not signed by us), unsigned (no mark), unknown key,
    index.
    """

    number: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class AuditVerification:
    """Result of a verification. `head` is the last entry that was checked. Only the first findings are reported.

    Entries up to `unsigned` have no seals of their own: their hashes and the mark protect them.
    """

    checked: int
    head: AuditChainHead
    findings: tuple[AuditFinding, ...] = ()
    unsigned: int = 0

    @property
    def is_sound(self) -> bool:
        return not self.findings


def head() -> AuditChainHead:
    """Returns the present end of the chain, which the next entry would follow."""
    row = AuditHead.objects.first()
    return AuditChainHead(row.number, row.hash) if row else AuditChainHead(0, "")


def kept_heads(lines: Iterable[str]) -> AuditChainHeads:
    """Reads kept heads, one per line; text before the JSON, as in a log, is skipped.

    Lines without a head are skipped; raises NotAHead if there is no head at all.
    """
    found: dict[int, set[str]] = defaultdict(set)
    for line in lines:
        start = line.find("{")
        if start >= 0 and '"hash"' in line:
            one = AuditChainHead.read(line[start : line.rfind("}") + 1])
            found[one.number].add(one.hash)
    if not found:
        AuditChainHead.read("")
    return {number: frozenset(hashes) for number, hashes in found.items()}


def compare(heads: AuditChainHeads) -> AuditVerification:
    """Checks only the entries of kept heads: quick, for a check that runs often."""
    numbers = sorted(heads)
    findings: list[AuditFinding] = []
    for at in range(0, len(numbers), _LOOKED_UP):
        part = numbers[at : at + _LOOKED_UP]
        hashes = dict(AuditEntry.objects.filter(number__in=part).values_list("number", "hash"))
        findings += [finding for number in part for finding in _compared(number, heads[number], hashes.get(number))]
    return AuditVerification(len(numbers), head(), tuple(findings[:TOLD]))


def _compared(number: int, kept: frozenset[str], hash: str | None) -> Iterator[AuditFinding]:
    if number < FIRST:
        return
    if hash is None:
        yield AuditFinding(number, "truncated", "A stored head names this entry, but the entry is missing.")
    elif kept != {hash}:
        yield AuditFinding(number, "altered", "It is not the entry of the stored head: the chain was rewritten.")


def verify(exported: AuditChainHead | AuditChainHeads | None = None) -> AuditVerification:
    """Verifies the whole chain: reads every entry once, in bounded memory. Entries appended meanwhile are left out."""
    until, mark = head(), seals.AuditMark.read()
    walk = _Walk(_heads(exported), mark)
    found: list[AuditFinding] = list(walk.begin())
    for entry in walk_entries():
        if entry.number > until.number:
            until = head()  # appended while we read, or inserted behind the end
        if entry.number > until.number:
            found.append(AuditFinding(entry.number, "inserted", "It is after the end of the chain."))
        else:
            found += walk.look(entry)
        if len(found) >= TOLD:
            return AuditVerification(walk.checked, walk.last, tuple(found[:TOLD]), mark.number)
    found += walk.end(until)
    return AuditVerification(walk.checked, walk.last, tuple(found[:TOLD]), mark.number)


def _heads(exported: AuditChainHead | AuditChainHeads | None) -> AuditChainHeads:
    return {exported.number: frozenset((exported.hash,))} if isinstance(exported, AuditChainHead) else exported or {}


class _Walk:
    """Pass along the chain. After a break it goes on from the entry it read, so that a break is reported once."""

    def __init__(self, kept: AuditChainHeads, mark: seals.AuditMark) -> None:
        self._kept = kept
        self._mark = mark
        self._index = AuditIndexCheck()
        self._keys: set[str] = set()  # names of keys that are not configured
        self.last = AuditChainHead(FIRST - 1, "")
        self.checked = 0

    def begin(self) -> Iterator[AuditFinding]:
        """Checks the mark of a chain that was signed from its first entry on."""
        if self._mark.number < FIRST and AuditEntry.objects.exists():
            yield from self._sealed(seals.START, self._mark.trouble(""))

    def look(self, entry: AuditChainEntry) -> Iterator[AuditFinding]:
        number, link = entry.number, entry.link
        if number < FIRST:
            yield AuditFinding(number, "inserted", "It is before the first entry.")
            return
        if number > self.last.number + 1:
            first, end = self.last.number + 1, number - 1
            which = f"#{first}" if first == end else f"#{first} to #{end}"
            yield AuditFinding(first, "deleted", f"Missing: {which}.")
        elif link.hash == entry.hash and link.previous != self.last.hash:
            yield AuditFinding(
                number, "inserted", f"It does not follow #{self.last.number}: one of the two was inserted."
            )
        if link.hash != entry.hash:
            yield _changed(entry)
        elif number > self._mark.number:
            yield from self._sealed(number, seals.trouble_of(number, entry.hash, entry.seal))
        if number == self._mark.number:
            yield from self._sealed(number, self._mark.trouble(entry.hash))
        if self._kept.get(number, {entry.hash}) != {entry.hash}:
            yield AuditFinding(number, "altered", "It is not the entry of the exported head: the chain was rewritten.")
        yield from self._rows(self._index.look(entry))
        self.last = AuditChainHead(number, entry.hash)
        self.checked += 1

    def end(self, until: AuditChainHead) -> Iterator[AuditFinding]:
        if until.number > self.last.number:
            text = f"The chain ends at #{self.last.number}, but #{until.number} was written."
            yield AuditFinding(self.last.number + 1, "truncated", text)
        elif until.number == self.last.number and until.hash != self.last.hash:
            yield AuditFinding(self.last.number, "altered", "The last entry is not the most recently written one.")
        newest = max(self._kept, default=0)
        if newest > self.last.number:
            text = f"The exported head is #{newest}, but the chain ends at #{self.last.number}."
            yield AuditFinding(self.last.number + 1, "truncated", text)
        if self._mark.number > self.last.number:
            yield AuditFinding(
                self._mark.number, "unsigned", "The marker of the first signed entry names a missing entry."
            )
        yield from self._rows(self._index.flush())
        yield from self._rows(self._index.strays())

    def _sealed(self, number: int, trouble: seals.SealProblem | None) -> Iterator[AuditFinding]:
        """Reports a key that is not configured once: all entries of its time were signed with it."""
        if trouble and not (trouble.key and trouble.key in self._keys):
            self._keys.add(trouble.key)
            yield AuditFinding(number, trouble.kind, trouble.text)

    def _rows(self, told: Iterable[tuple[int, str]]) -> Iterator[AuditFinding]:
        return (AuditFinding(number, "index", text) for number, text in told)


def _changed(entry: AuditChainEntry) -> AuditFinding:
    """Reports an entry as moved if its hash fits the number after the entry it follows, else as altered."""
    before = AuditEntry.objects.filter(hash=entry.link.previous).values_list("number", flat=True).first()
    home = FIRST if entry.link.previous == "" else before + 1 if before is not None else None
    if home is not None and home != entry.number and _at(entry, home) == entry.hash:
        return AuditFinding(entry.number, "moved", f"It was written as #{home}.")
    return AuditFinding(entry.number, "altered", "It was modified.")


def _at(entry: AuditChainEntry, number: int) -> str:
    return replace(entry.link, number=number).hash
