"""Signs the audit: each entry's hash gets a seal by a key derived from SECRET_KEY; a mark says where seals begin.

An attacker with write access to the database can recompute hashes, but no seals. The mark signs the number and the
hash of the last entry that needs none: entries of earlier versions, and those before a discarded key (`audit reseal`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from recovery import signing
from recovery.domain.audit.hash_chain import FIRST
from recovery.models import AuditHead

UNKNOWN_KEY = "unknown key"
START = FIRST - 1  # the mark of a chain that this version began
_ENTRY, _MARK = "audit entry", "audit mark"
_KEY = re.compile(r"([0-9a-f]{8}):[0-9a-f]{64}$")
NO_MARK = "The first signed entry is unknown: its marker was removed, or the database is not migrated."
_BAD_MARK = "The marker of the first signed entry is not signed with the secret key, or not for this entry."
_NOT_OURS = "It is not signed with the secret key: another program wrote it."
_OTHER_KEY = (
    "It is signed with a key that is not configured (its name is {key}). Put the former key into "
    "UNSTALL_SECRET_KEY_FALLBACKS; if this installation never used such a key, another program wrote it."
)


class SealProblem(NamedTuple):
    """Problem of a signature, as a kind of finding."""

    kind: str
    text: str
    key: str = ""  # the name of the key that made it, if that key is not configured


@dataclass(frozen=True, slots=True)
class AuditMark:
    """Mark of where seals begin: entries up to `number` need none; `seal` signs that number with its entry's hash."""

    number: int = 0
    seal: str = ""

    @classmethod
    def of(cls, number: int, hash: str) -> AuditMark:
        return cls(number, signing.sign_with_id(_MARK, hash.encode(), number))

    @classmethod
    def read(cls) -> AuditMark:
        row = AuditHead.objects.first()
        return cls(row.marked, row.mark) if row else cls()

    def trouble(self, hash: str) -> SealProblem | None:
        """Returns why the mark is invalid, or None. `hash` is that of the entry it names ("" before the first one)."""
        if not self.seal:
            return SealProblem("unsigned", NO_MARK)
        is_signed = signing.is_signed_with_id(_MARK, self.seal, hash.encode(), self.number)
        return _trouble(is_signed, self.seal, SealProblem("unsigned", _BAD_MARK))


def seal_of(number: int, hash: str) -> str:
    return signing.sign_with_id(_ENTRY, hash.encode(), number)


def trouble_of(number: int, hash: str, seal: str) -> SealProblem | None:
    """Returns why an entry's seal is invalid; None if it is valid."""
    is_signed = signing.is_signed_with_id(_ENTRY, seal, hash.encode(), number)
    return _trouble(is_signed, seal, SealProblem("forged", _NOT_OURS))


def _trouble(is_signed: bool | None, seal: str, otherwise: SealProblem) -> SealProblem | None:
    if is_signed:
        return None
    key = _KEY.match(seal)
    return SealProblem(UNKNOWN_KEY, _OTHER_KEY.format(key=key[1]), key[1]) if is_signed is None and key else otherwise
