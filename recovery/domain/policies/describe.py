"""Describes a policy for readers: each term in words with its origin, and all of it as it is written in TOML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recovery.domain.auto_retry.backoff import ANY, Backoff
from recovery.domain.identifiers import printable
from recovery.domain.policies import policy_layers
from recovery.domain.policies.policy_layers import DUTY, Path, PolicySource, PolicyValueOrigin, ResolvedPolicy
from recovery.domain.policies.types import MAY_RELEASE, NO_NOTE, Policy, PolicyScanner
from recovery.domain.time_units import SECOND

_OTHERS = "the rest"


@dataclass(frozen=True, slots=True)
class PolicyTerm:
    """A line. `origin` in words; `is_set`: the value is set, and not a default."""

    name: str
    value: str
    origin: str
    is_set: bool


def policy_terms(found: ResolvedPolicy, now: int) -> tuple[PolicyTerm, ...]:
    """Returns the terms of a policy: first what scanners may do, then the rules of auto-retry."""
    return (*(_duty(found, scanner, now) for scanner in PolicyScanner), *_auto_retry_terms(found, now))


def policy_settings(policy: Policy) -> dict[str, Any]:
    """Returns all settings of a policy, under the keys that policy_text reads."""
    table = {ANY: policy.backoffs.default, **policy.backoffs.by_name}
    return {
        **{scanner.field: _written_duty(policy, scanner) for scanner in PolicyScanner},
        policy_layers.BACKOFF: {name: _written_backoff(backoff) for name, backoff in sorted(table.items())},
        policy_layers.NEVER: {
            policy_layers.NAMES: sorted(policy.never.names),
            policy_layers.SIGNATURES: sorted(policy.never.signatures),
        },
        policy_layers.NOTE: policy.idempotency,
    }


def origins(found: ResolvedPolicy) -> list[dict[str, Any]]:
    """Returns the origin of each value that is not the default, as JSON."""
    return [{"path": list(path), **as_json(origin)} for path, origin in sorted(found.origins.items())]


def as_json(origin: PolicyValueOrigin) -> dict[str, Any]:
    return {
        "source": origin.source.name.lower(),
        "deployment": origin.deployment,
        "base": origin.base,
        "by": origin.by or None,
        "at": origin.at,
    }


def _duty(found: ResolvedPolicy, scanner: PolicyScanner, now: int) -> PolicyTerm:
    """Returns the term of one scanner. Its values often have one origin; where they differ each is named."""
    value = found.policy.duty(scanner).words
    if found.policy.lacks_note(scanner):
        value = f"{value} {NO_NOTE}"
    said = {name: found.origin(scanner.field, name) for name in DUTY if name != "release" or scanner in MAY_RELEASE}
    return PolicyTerm(scanner.value, value, _merged(said, now), any(origin.source for origin in said.values()))


def _merged(said: Mapping[str, PolicyValueOrigin], now: int) -> str:
    by_origin: dict[PolicyValueOrigin, list[str]] = {}
    for name, origin in said.items():
        by_origin.setdefault(origin, []).append(name)
    if len(by_origin) == 1:
        return next(iter(by_origin)).words(now)
    told = [f"{', '.join(names)}: {origin.words(now)}" for origin, names in by_origin.items() if origin.source]
    return "; ".join([*told, f"{_OTHERS}: by default"] if PolicyValueOrigin() in by_origin else told)


def _auto_retry_terms(found: ResolvedPolicy, now: int) -> Iterator[PolicyTerm]:
    policy = found.policy
    for name, backoff in (*sorted(policy.backoffs.by_name.items()), (ANY, policy.backoffs.default)):
        others = "all others" if policy.backoffs.by_name else "all jobs"
        label = others if name == ANY else printable(name)
        yield _term(f"backoff, {label}", backoff.words, found, (policy_layers.BACKOFF, name), now)
    for kind, words in ((policy_layers.NAMES, "Jobs named {}."), (policy_layers.SIGNATURES, "After “{}”.")):
        for entry in _sorted(found, kind):
            yield _term(
                "never auto-retried", words.format(printable(entry)), found, (policy_layers.NEVER, kind, entry), now
            )
    note = policy.idempotency.strip()
    yield _term("idempotency note", printable(note) or "Not set.", found, (policy_layers.NOTE,), now)


def _sorted(found: ResolvedPolicy, kind: str) -> Iterable[str]:
    never = found.policy.never
    return sorted(never.names if kind == policy_layers.NAMES else never.signatures)


def _term(name: str, value: str, found: ResolvedPolicy, path: Path, now: int) -> PolicyTerm:
    origin = found.origin(*path)
    return PolicyTerm(name, value, origin.words(now), origin.source is not PolicySource.DEFAULT)


def _written_duty(policy: Policy, scanner: PolicyScanner) -> dict[str, Any]:
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
