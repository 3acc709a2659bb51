"""Defines the audit's hash chain: what of an entry is hashed, and how. A changed entry breaks every one behind it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import astuple, dataclass, fields
from typing import Any

from recovery.domain.identifiers import slug

FIRST = 1  # number of the first entry; what it follows has the hash ""
KEY_LIMIT = 1000  # characters of a job's name in the index: PostgreSQL's index rows end at 2,700 bytes


@dataclass(frozen=True, slots=True)
class AuditChainLink:
    """Fields that the hash of an entry covers, in the order in which they are hashed."""

    number: int
    at: int
    phase: str
    intent: int | None
    actor_kind: str
    actor: str
    role: str
    address: str
    act: str
    deployment: str
    base: str
    reason: str
    body: str
    previous: str

    @property
    def hash(self) -> str:
        return hashlib.sha256(canonical(list(astuple(self))).encode("ascii")).hexdigest()


FIELDS = tuple(field.name for field in fields(AuditChainLink))


def canonical(value: Any) -> str:
    """Returns the one JSON text of a value: sorted keys, no spaces, ASCII only, so that any byte of a name survives."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":"), allow_nan=False)


def job_key(id: str) -> str:
    """Returns a job's id as the index holds it. A very long one is cut, and told apart by its digest."""
    written = slug(id)
    if len(written) <= KEY_LIMIT:
        return written
    digest = hashlib.sha256(written.encode("ascii")).hexdigest()
    return written[: KEY_LIMIT - len(digest)] + digest
