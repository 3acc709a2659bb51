"""Combinations that cannot be: each value may be right alone, and wrong beside another."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from recovery.config.readers import Problems
from recovery.config.values import Address, Config, Deployment

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "localhost.localdomain"})
_TRUE = frozenset({"1", "true", "yes", "on"})


def check(config: Config, environ: Mapping[str, str], problems: Problems) -> None:
    _names(config, problems)
    _places(config, problems)
    _state_apart(config, problems)
    _queues(config, problems)
    if config.environment_is_production and environ.get("UNSTALL_DEBUG", "").lower() in _TRUE:
        problems.add(
            "UNSTALL_DEBUG",
            f"is on in the environment {config.environment!r}: its error pages show settings to anybody.",
            "Remove it, or name the environment otherwise.",
        )


def _names(config: Config, problems: Problems) -> None:
    names = [deployment.name for deployment in config.deployments]
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        by_variable = " UNSTALL_REDIS_URL makes one named main." if name == "main" else ""
        problems.add(
            "deployments", f"has {names.count(name)} named {name!r}.{by_variable}", "Give each a name of its own."
        )


def _places(config: Config, problems: Problems) -> None:
    """The same queues twice: counted twice, and acted on under two names."""
    for one, other in combinations(config.deployments, 2):
        if one.name != other.name and _overlap(one, other) and one.prefixes == other.prefixes:
            problems.add(
                "deployments",
                f"has {one.name!r} and {other.name!r} at the same place, {one.target}.",
                "Remove one, or give them different prefixes.",
            )


def _state_apart(config: Config, problems: Problems) -> None:
    if config.state is None:
        return
    for deployment in config.deployments:
        if _overlap(config.state, deployment):
            problems.add(
                "UNSTALL_STATE_URL",
                f"is the place of the queues of {deployment.name!r}, {deployment.target}.",
                "Use another server, or another database number of it: nothing is written beside queues.",
            )


def _queues(config: Config, problems: Problems) -> None:
    """A slip of the pen would leave a queue with the thresholds of all others, and nobody would notice."""
    known = {deployment.name for deployment in config.deployments}
    for name, base in config.queue_thresholds:
        if name and name not in known:
            problems.add(
                "queues",
                f"has {name + '/' + base!r}, and no deployment is named {name!r}.",
                f"Known here: {', '.join(sorted(known)) or 'none'}.",
            )


def _overlap(one: Deployment, other: Deployment) -> bool:
    # Which server a sentinel speaks of only it knows: sentinels are compared with sentinels, by their master's name.
    if one.sentinel_master != other.sentinel_master:
        return False
    same_server = {_plain(node) for node in one.nodes} & {_plain(node) for node in other.nodes}
    return bool(same_server) and one.database == other.database


def _plain(address: Address) -> Address:
    host = address.host.lower()
    return Address("localhost" if host in _LOOPBACK else host, address.port, address.path)
