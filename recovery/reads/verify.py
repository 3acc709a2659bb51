"""Whether the audit is what was written: every hash made again, every link followed, the end compared.

What it finds: entries that were altered, deleted, inserted or moved, and an end that was cut off. Whoever can write
into the database could also write the whole chain anew; that shows only against a head that was exported before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace

from recovery.domain.chain import FIRST
from recovery.errors import UnstallError
from recovery.models import AuditEntry, AuditHead
from recovery.reads.links import Entry, walked

TOLD = 50  # findings told; a chain that broke once breaks at every later entry


class NotAHead(UnstallError):
    """What was given is no exported head."""


@dataclass(frozen=True, slots=True)
class Head:
    """The end of the chain: kept elsewhere, it proves later that nothing up to here was changed."""

    number: int
    hash: str

    def written(self) -> str:
        return json.dumps({"number": self.number, "hash": self.hash})

    @classmethod
    def read(cls, text: str) -> Head:
        try:
            found = json.loads(text)
            return cls(int(found["number"]), str(found["hash"]))
        except (ValueError, TypeError, KeyError) as error:
            raise NotAHead('This is no head of an audit: {"number": …, "hash": "…"} is what it looks like.') from error


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that cannot be if nobody touched the chain. `kind`: altered, deleted, inserted, moved, truncated."""

    number: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """`head` is the last entry that was looked at. Only the first findings are told."""

    checked: int
    head: Head
    findings: tuple[Finding, ...] = ()

    @property
    def is_sound(self) -> bool:
        return not self.findings


def head() -> Head:
    """Where the chain ends now, as the next entry would follow it."""
    row = AuditHead.objects.first()
    return Head(row.number, row.hash) if row else Head(0, "")


def verify(exported: Head | None = None) -> Report:
    """Reads every entry once, in bounded memory. What is appended meanwhile is left for the next time."""
    until = head()
    walk = _Walk(exported)
    found: list[Finding] = []
    for entry in walked():
        if entry.number > until.number:
            until = head()  # appended while we read, or inserted behind the end
        if entry.number > until.number:
            found.append(Finding(entry.number, "inserted", "It stands behind the end of the chain."))
        else:
            found += walk.look(entry)
        if len(found) >= TOLD:
            return Report(walk.checked, walk.last, tuple(found[:TOLD]))
    found += walk.end(until)
    return Report(walk.checked, walk.last, tuple(found[:TOLD]))


class _Walk:
    """One pass along the chain. After a break it goes on from what it found, so that one break is told once."""

    def __init__(self, exported: Head | None) -> None:
        self._exported = exported
        self.last = Head(FIRST - 1, "")
        self.checked = 0

    def look(self, entry: Entry) -> Iterator[Finding]:
        number, link = entry.number, entry.link
        if number < FIRST:
            yield Finding(number, "inserted", "It stands in front of the first entry.")
            return
        if number > self.last.number + 1:
            first, end = self.last.number + 1, number - 1
            which = f"#{first}" if first == end else f"#{first} to #{end}"
            yield Finding(first, "deleted", f"Missing: {which}.")
        elif link.hash == entry.hash and link.previous != self.last.hash:
            yield Finding(number, "inserted", f"It does not follow #{self.last.number}: one of the two was put there.")
        if link.hash != entry.hash:
            yield _changed(entry)
        if self._exported and number == self._exported.number and entry.hash != self._exported.hash:
            yield Finding(number, "altered", "It is not the entry of the exported head: the chain was written anew.")
        self.last = Head(number, entry.hash)
        self.checked += 1

    def end(self, until: Head) -> Iterator[Finding]:
        if until.number > self.last.number:
            text = f"The chain ends at #{self.last.number}, and #{until.number} was written."
            yield Finding(self.last.number + 1, "truncated", text)
        elif until.number == self.last.number and until.hash != self.last.hash:
            yield Finding(self.last.number, "altered", "The last entry is not the one that was written last.")
        if self._exported and self._exported.number > self.last.number:
            text = f"The exported head is #{self._exported.number}, and the chain ends at #{self.last.number}."
            yield Finding(self.last.number + 1, "truncated", text)


def _changed(entry: Entry) -> Finding:
    """Altered, or the entry of another place: then its hash is right for the number behind the one it follows."""
    before = AuditEntry.objects.filter(hash=entry.link.previous).values_list("number", flat=True).first()
    home = FIRST if entry.link.previous == "" else before + 1 if before is not None else None
    if home is not None and home != entry.number and _at(entry, home) == entry.hash:
        return Finding(entry.number, "moved", f"It was written as #{home}.")
    return Finding(entry.number, "altered", "It is not what was written.")


def _at(entry: Entry, number: int) -> str:
    return replace(entry.link, number=number).hash
