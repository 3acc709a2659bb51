"""[policy] and [[policies]]: what the scanners may do to all queues, and to some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from recovery.config.schema import POLICIES
from recovery.config.validation import ConfigProblems
from recovery.domain.policies import parser
from recovery.domain.policies.policy_layers import LayerValues, PolicySource, PolicyValueOrigin

_PLACE = frozenset(key.name for key in POLICIES)


def read_policies(
    common: Mapping[str, Any], tables: list[Mapping[str, Any]], problems: ConfigProblems
) -> tuple[LayerValues, ...]:
    found = [_layer(PolicyValueOrigin(PolicySource.FILE), common, "policy.", problems)] if common else []
    places: set[tuple[str, str]] = set()
    for number, table in enumerate(tables, 1):
        where = f"policies[{number}]."
        origin = _origin(table, where, problems)
        if origin and (origin.deployment, origin.base) in places:
            problems.add(
                where.rstrip("."),
                "is a second one for the same queue or deployment.",
                "Write one table for each queue or deployment.",
            )
        if origin:
            places.add((origin.deployment, origin.base))
        said = {name: value for name, value in table.items() if name not in _PLACE}
        found.append(_layer(origin or PolicyValueOrigin(PolicySource.FILE), said, where, problems))
    return tuple(found)


def _layer(origin: PolicyValueOrigin, written: Mapping[str, Any], where: str, problems: ConfigProblems) -> LayerValues:
    values, wrong = parser.read_policy(written, where)
    problems.found.extend(wrong)
    return LayerValues(origin, values)


def _origin(table: Mapping[str, Any], where: str, problems: ConfigProblems) -> PolicyValueOrigin | None:
    """Returns where the policy counts; None after a problem."""
    named = dict(_names(table, where, problems))
    if len(named) != len(_PLACE & table.keys()):
        return None
    if len(named) != 1:
        trouble = "is set, and queue too." if named else "is missing, and queue too."
        problems.add(f"{where}deployment", trouble, "Write one of the two; [policy] is for all queues.")
        return None
    if "deployment" in named:
        return PolicyValueOrigin(PolicySource.FILE, named["deployment"])
    deployment, slash, base = named["queue"].partition("/")
    if slash and not (deployment and base):
        problems.add(f"{where}queue", "is incomplete.", 'Write DEPLOYMENT/BASE or BASE, like "shop/bull:mail".')
        return None
    return (
        PolicyValueOrigin(PolicySource.FILE, deployment, base)
        if slash
        else PolicyValueOrigin(PolicySource.FILE, base=deployment)
    )


def _names(table: Mapping[str, Any], where: str, problems: ConfigProblems) -> Iterator[tuple[str, str]]:
    for key in POLICIES:
        if key.name not in table:
            continue
        written = table[key.name]
        if isinstance(written, str) and written:
            yield key.name, written
        else:
            problems.add(f"{where}{key.name}", "is not a name.", f"Write {key.kind}.")
