"""Describes a policy for readers: each term in words with its origin, and all of it as it is written in TOML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recovery.domain import policies
from recovery.domain.ages import SECOND
from recovery.domain.backoff import ANY, Backoff
from recovery.domain.policies import DUTY, Origin, Path, Resolved, Source
from recovery.domain.policy import MAY_RELEASE, NO_NOTE, Policy, Scanner
from recovery.domain.refs import shown

_OTHERS = "the rest"


@dataclass(frozen=True, slots=True)
class Term:
    """A line. `origin` in words; `is_set`: the value is set, and not a default."""

    name: str
    value: str
    origin: str
    is_set: bool


def terms(found: Resolved, now: int) -> tuple[Term, ...]:
    """Returns the terms of a policy: first what scanners may do, then the rules of auto-retry."""
    return (*(_duty(found, scanner, now) for scanner in Scanner), *_relaunching(found, now))


def written(policy: Policy) -> dict[str, Any]:
    """Returns all settings of a policy, under the keys that policy_text reads."""
    table = {ANY: policy.backoffs.default, **policy.backoffs.by_name}
    return {
        **{scanner.field: _written_duty(policy, scanner) for scanner in Scanner},
        policies.BACKOFF: {name: _written_backoff(backoff) for name, backoff in sorted(table.items())},
        policies.NEVER: {
            policies.NAMES: sorted(policy.never.names),
            policies.SIGNATURES: sorted(policy.never.signatures),
        },
        policies.NOTE: policy.idempotency,
    }


def origins(found: Resolved) -> list[dict[str, Any]]:
    """Returns the origin of each value that is not the default, as JSON."""
    return [{"path": list(path), **as_json(origin)} for path, origin in sorted(found.origins.items())]


def as_json(origin: Origin) -> dict[str, Any]:
    return {
        "source": origin.source.name.lower(),
        "deployment": origin.deployment,
        "base": origin.base,
        "by": origin.by or None,
        "at": origin.at,
    }


def _duty(found: Resolved, scanner: Scanner, now: int) -> Term:
    """Returns the term of one scanner. Its values often have one origin; where they differ each is named."""
    value = found.policy.duty(scanner).words
    if found.policy.lacks_note(scanner):
        value = f"{value} {NO_NOTE}"
    said = {name: found.origin(scanner.field, name) for name in DUTY if name != "release" or scanner in MAY_RELEASE}
    return Term(scanner.value, value, _merged(said, now), any(origin.source for origin in said.values()))


def _merged(said: Mapping[str, Origin], now: int) -> str:
    by_origin: dict[Origin, list[str]] = {}
    for name, origin in said.items():
        by_origin.setdefault(origin, []).append(name)
    if len(by_origin) == 1:
        return next(iter(by_origin)).words(now)
    told = [f"{', '.join(names)}: {origin.words(now)}" for origin, names in by_origin.items() if origin.source]
    return "; ".join([*told, f"{_OTHERS}: by default"] if Origin() in by_origin else told)


def _relaunching(found: Resolved, now: int) -> Iterator[Term]:
    policy = found.policy
    for name, backoff in (*sorted(policy.backoffs.by_name.items()), (ANY, policy.backoffs.default)):
        others = "all others" if policy.backoffs.by_name else "all jobs"
        label = others if name == ANY else shown(name)
        yield _term(f"backoff, {label}", backoff.words, found, (policies.BACKOFF, name), now)
    for kind, words in ((policies.NAMES, "Jobs named {}."), (policies.SIGNATURES, "After “{}”.")):
        for entry in _sorted(found, kind):
            yield _term("never auto-retried", words.format(shown(entry)), found, (policies.NEVER, kind, entry), now)
    note = policy.idempotency.strip()
    yield _term("idempotency note", shown(note) or "Not set.", found, (policies.NOTE,), now)


def _sorted(found: Resolved, kind: str) -> Iterable[str]:
    never = found.policy.never
    return sorted(never.names if kind == policies.NAMES else never.signatures)


def _term(name: str, value: str, found: Resolved, path: Path, now: int) -> Term:
    origin = found.origin(*path)
    return Term(name, value, origin.words(now), origin.source is not Source.DEFAULT)


def _written_duty(policy: Policy, scanner: Scanner) -> dict[str, Any]:
    duty = policy.duty(scanner)
    said: dict[str, Any] = {"mode": duty.mode.value, "after": _seconds(duty.after), "most": duty.most}
    return said | ({"release": duty.release} if scanner in MAY_RELEASE else {})


def _written_backoff(backoff: Backoff) -> dict[str, Any]:
    return {
        "attempts": backoff.attempts,
        "first": _seconds(backoff.first),
        "factor": backoff.factor,
        "longest": _seconds(backoff.longest),
        "jitter": backoff.jitter,
    }


def _seconds(ms: int) -> float | int:
    """Converts ms to seconds; a whole number where possible."""
    return ms // SECOND if ms % SECOND == 0 else ms / SECOND
