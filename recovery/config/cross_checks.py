"""Checks combinations of settings: each value may be right alone, and wrong beside another."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from recovery.config.addresses.database_urls import BadDatabaseUrl, parse
from recovery.config.types import Config, Deployment, ServerAddress
from recovery.config.validation import ConfigProblems
from recovery.errors import DeploymentMissing

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "localhost.localdomain"})
_OURS = ("auth_", "dashboard_", "django_", "recovery_")
_TRUE = frozenset({"1", "true", "yes", "on"})


def check(config: Config, environ: Mapping[str, str], problems: ConfigProblems) -> None:
    _names(config, problems)
    _places(config, problems)
    _state_apart(config, problems)
    _queues(config, problems)
    _policies(config, problems)
    _hooks(config, problems)
    _own_tables(config, environ, problems)
    if config.environment_is_production and environ.get("UNSTALL_DEBUG", "").lower() in _TRUE:
        problems.add(
            "UNSTALL_DEBUG",
            f"is on in the environment {config.environment!r}: its error pages show settings to everyone.",
            "Remove it, or change the name of the environment.",
        )


def _names(config: Config, problems: ConfigProblems) -> None:
    names = _places_by_name(config)
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        by_variable = " UNSTALL_REDIS_URL makes one named main." if name == "main" else ""
        problems.add("deployments", f"has {names.count(name)} named {name!r}.{by_variable}", "Give each a unique name.")


def _places_by_name(config: Config) -> list[str]:
    """Returns the names of deployments, Redis and SQL alike: a queue is DEPLOYMENT/BASE wherever it lives."""
    return [*(one.name for one in config.deployments), *(one.name for one in config.databases)]


def _places(config: Config, problems: ConfigProblems) -> None:
    """Refuses the same queues twice: they would be counted twice, and acted on under two names."""
    for one, other in combinations(config.deployments, 2):
        if one.name != other.name and _overlap(one, other) and one.prefixes == other.prefixes:
            problems.add(
                "deployments",
                f"has {one.name!r} and {other.name!r} at the same target, {one.target}.",
                "Remove one, or give them different prefixes.",
            )


def _state_apart(config: Config, problems: ConfigProblems) -> None:
    if config.state is None:
        return
    for deployment in config.deployments:
        if _overlap(config.state, deployment):
            problems.add(
                "UNSTALL_STATE_URL",
                f"is the database of the queues of {deployment.name!r}, {deployment.target}.",
                "Use another server, or another database number of it: Unstall writes nothing next to queues.",
            )


def _queues(config: Config, problems: ConfigProblems) -> None:
    """Refuses unknown deployments: a typo would leave a queue with the thresholds of all others, unnoticed."""
    known = set(_places_by_name(config))
    for name, base in config.queue_thresholds:
        if name and name not in known:
            problems.add(
                "queues",
                f"has {name + '/' + base!r}, but no deployment is named {name!r}.",
                f"Known: {', '.join(sorted(known)) or 'none'}.",
            )


def _policies(config: Config, problems: ConfigProblems) -> None:
    """Refuses policies for unknown deployments: what they forbid would not be forbidden anywhere."""
    for name in sorted({layer.origin.deployment for layer in config.policies} - {""}):
        try:
            config.deployment(name)
        except DeploymentMissing as missing:
            problems.add("policies", f"has one for {name!r}.", str(missing))


def _hooks(config: Config, problems: ConfigProblems) -> None:
    """Refuses hooks for unknown deployments: they would never be called."""
    known = {place.name for place in config.places}
    for hook in config.hooks:
        if hook.deployment and hook.deployment not in known:
            problem = f"has {hook.name!r} for a queue in {hook.deployment!r}, but no deployment has that name."
            problems.add("hooks", problem, f"Known: {', '.join(sorted(known)) or 'none'}.")


def _own_tables(config: Config, environ: Mapping[str, str], problems: ConfigProblems) -> None:
    """Refuses tables of Unstall as job tables, whatever their columns are: they keep the audit and the rights."""
    folder = Path.cwd()
    data = Path(environ.get("UNSTALL_DATA_DIR") or folder / ".unstall").expanduser().absolute()
    try:
        own = parse(environ.get("DATABASE_URL") or f"sqlite:///{data}/unstall.sqlite3", folder)
    except BadDatabaseUrl:
        return  # reported when it is opened
    place = own["engine"], own.get("host", ""), own.get("port", 0), own["path"]
    ours = {
        database.name
        for database in config.databases
        if (database.engine, database.host, database.port, database.path) == place
    }
    for table in config.tables:
        if table.database in ours and table.table.rpartition(".")[2].startswith(_OURS):
            problems.add(
                "tables", f"has {table.table!r}, which is a table of Unstall.", "Name a table of an application."
            )


def _overlap(one: Deployment, other: Deployment) -> bool:
    # Which server a sentinel speaks of only it knows: sentinels are compared with sentinels, by their master's name.
    if one.sentinel_master != other.sentinel_master:
        return False
    same_server = {_plain(node) for node in one.nodes} & {_plain(node) for node in other.nodes}
    return bool(same_server) and one.database == other.database


def _plain(address: ServerAddress) -> ServerAddress:
    host = address.host.lower()
    return ServerAddress("localhost" if host in _LOOPBACK else host, address.port, address.path)
