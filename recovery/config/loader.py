"""Loads the TOML file and the environment into one Config, or reports every problem at once.

1. Read UNSTALL_CONFIG (default: unstall.toml when there is one).
2. Lay the environment over it: UNSTALL_REDIS_URL adds the deployment `main`, which UNSTALL_READ_ONLY makes read only;
   UNSTALL_STATE_URL, UNSTALL_ENVIRONMENT and UNSTALL_OPERATORS_MAY win over the file, UNSTALL_N8N_DATABASE_URL adds a
   database.
3. Build the values, collecting problems; look for combinations that cannot be.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recovery.config import cross_checks
from recovery.config.addresses.public_url import read_public_url
from recovery.config.alerts import read_alerting
from recovery.config.audit import read_audit
from recovery.config.gate import read_gate
from recovery.config.hooks import read_hooks
from recovery.config.idempotency import read_idempotency
from recovery.config.job_tables import read_databases, read_tables
from recovery.config.logs import read_logs
from recovery.config.metrics import read_metrics
from recovery.config.n8n import N8nReferences, database_of, read_n8n
from recovery.config.nodes import read_nodes, read_prometheus
from recovery.config.policies import read_policies
from recovery.config.redaction import read_redaction
from recovery.config.redis_stores import StoreConfigSource, read_deployment, read_state
from recovery.config.schema import INTERVALS, ROOT
from recovery.config.thresholds import read_queues, read_thresholds
from recovery.config.types import Config
from recovery.config.validation import ConfigProblems, flag, read_table, refuse_misspelled, secret
from recovery.domain.actions.types import Right
from recovery.errors import ConfigError

DEFAULT_FILE = "unstall.toml"
GRANTED = (Right.MANY, Right.PAUSE)  # what operators may be given beside single jobs
NOTHING = "nothing"
ENVIRONMENT_LIMIT = 24  # characters: it stands in the page's frame beside the logo


def load(environ: Mapping[str, str], *, directory: Path | None = None) -> Config:
    """Loads the whole configuration; raises ConfigError with every problem."""
    problems = ConfigProblems()
    refuse_misspelled(environ, problems)
    folder, written = _file(environ, directory or Path.cwd(), problems)
    root = read_table(written, ROOT, "", folder, problems)
    intervals = read_table(root["intervals"] or {}, INTERVALS, "intervals.", folder, problems)
    thresholds = read_thresholds(root["thresholds"] or {}, folder, problems)
    queues = read_queues(root["queues"] or [], thresholds, folder, problems)
    databases = (
        *read_databases(root["databases"] or [], folder, problems),
        *database_of(secret(environ, "UNSTALL_N8N_DATABASE_URL", problems), folder, problems),
    )
    deployments = _deployments(environ, root, folder, problems)
    names = tuple(deployment.name for deployment in deployments)
    nodes = read_nodes(root["nodes"] or [], folder, problems)
    config = Config(
        databases=databases,
        tables=read_tables(root["tables"] or [], _databases(root), folder, problems),
        deployments=deployments,
        state=_state(environ, root, folder, problems),
        environment=_environment(environ, root, problems),
        operators_may=_operators_may(environ, root, problems),
        collect_every=intervals["collect"],
        discover_every=intervals["discover"],
        orphans_every=intervals["orphans"],
        n8n_every=intervals["n8n"],
        stale_check_every=intervals["stale_check"],
        auto_retry_every=intervals["auto_retry"],
        startup_sweep_every=intervals["startup_sweep"],
        prune_every=intervals["prune"],
        thresholds=thresholds,
        queue_thresholds=queues.thresholds,
        queue_schemas=queues.schemas,
        policies=read_policies(root["policy"] or {}, root["policies"] or [], problems),
        hooks=read_hooks(root["hooks"] or [], _databases(root), folder, problems),
        gate=read_gate(root["gate"] or {}, root["servers"] or [], folder, problems),
        metrics=read_metrics(root["metrics"] or {}, folder, problems),
        idempotency=read_idempotency(root["idempotency"] or {}, folder, problems),
        redaction=read_redaction(root["redaction"] or {}, folder, problems),
        alerting=read_alerting(root["alerts"] or {}, folder, problems),
        audit=read_audit(root["audit"] or {}, folder, problems),
        public_url=read_public_url(environ, problems),
        nodes=nodes,
        prometheus=read_prometheus(root["prometheus"], nodes, folder, problems),
        logs=read_logs(root["logs"] or [], folder, problems),
        n8n=read_n8n(root["n8n"] or [], N8nReferences(names, {one.name: one for one in databases}, folder), problems),
    )
    cross_checks.check(config, environ, problems)
    if problems.found:
        raise ConfigError(tuple(problems.found))
    return config


def load_described(url: str, table: Mapping[str, Any], directory: Path) -> Config:
    """Loads one database with one table, described in the words of the file; raises ConfigError."""
    problems = ConfigProblems()
    databases = read_databases([{"name": "app", "url": url}], directory, problems)
    tables = read_tables([{"database": "app", **table}], frozenset({"app"}), directory, problems)
    if problems.found:
        raise ConfigError(tuple(problems.found))
    return Config(databases=databases, tables=tables)


def _file(environ: Mapping[str, str], directory: Path, problems: ConfigProblems) -> tuple[Path, Mapping[str, Any]]:
    named = environ.get("UNSTALL_CONFIG", "")
    path = directory / Path(named or DEFAULT_FILE).expanduser()
    if not named and not path.exists():
        return directory, {}
    try:
        return path.parent, tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        problems.add(
            "UNSTALL_CONFIG", f"names {path}, which cannot be read: {error.strerror}.", "Write the path of a file."
        )
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.add(str(path), f"is not TOML: {error}.", "Fix that line; strings need quotes.")
    return path.parent, {}


def _deployments(environ: Mapping[str, str], root: Mapping[str, Any], folder: Path, problems: ConfigProblems) -> Any:
    sources = [
        StoreConfigSource(f"deployments[{number}].", table, folder)
        for number, table in enumerate(root["deployments"] or (), 1)
    ]
    url = secret(environ, "UNSTALL_REDIS_URL", problems)
    if url:
        main = {"name": "main", "url": url, "read_only": flag(environ, "UNSTALL_READ_ONLY", problems)}
        sources.insert(0, StoreConfigSource("", main, folder, url_key="UNSTALL_REDIS_URL"))
    built = [read_deployment(source, problems) for source in sources]
    return tuple(deployment for deployment in built if deployment)


def _databases(root: Mapping[str, Any]) -> frozenset[str]:
    """Returns names of databases as they are written: what is wrong with them is said where they are read."""
    return frozenset(str(table.get("name", "")) for table in root.get("databases") or ())


def _state(environ: Mapping[str, str], root: Mapping[str, Any], folder: Path, problems: ConfigProblems) -> Any:
    url = secret(environ, "UNSTALL_STATE_URL", problems)
    if url:
        return read_state(StoreConfigSource("", {"url": url}, folder, url_key="UNSTALL_STATE_URL"), problems)
    written = root["state"]
    return read_state(StoreConfigSource("state.", written, folder), problems) if isinstance(written, dict) else None


def _environment(environ: Mapping[str, str], root: Mapping[str, Any], problems: ConfigProblems) -> str:
    in_environ = environ.get("UNSTALL_ENVIRONMENT", "")
    name: str = in_environ or root["environment"]
    if len(name) > ENVIRONMENT_LIMIT or not name.isprintable():
        key = "UNSTALL_ENVIRONMENT" if in_environ else "environment"
        problems.add(key, "is too long or not printable.", f"Write at most {ENVIRONMENT_LIMIT} printable characters.")
    return name


def _operators_may(environ: Mapping[str, str], root: Mapping[str, Any], problems: ConfigProblems) -> frozenset[Right]:
    """Returns the rights of operators. Only the environment has the word "nothing": empty means unset there."""
    in_environ = environ.get("UNSTALL_OPERATORS_MAY", "").strip()
    named = [name.strip() for name in in_environ.split(",")] if in_environ else list(root["operators_may"])
    if in_environ == NOTHING:
        named = []
    if unknown := [name for name in named if name not in GRANTED]:
        key = "UNSTALL_OPERATORS_MAY" if in_environ else "operators_may"
        words = " and ".join(GRANTED)
        remedy = f"Write {words}, one of them, or {NOTHING if in_environ else 'none: []'}."
        problems.add(key, f"names {unknown[0]!r}, which is not a right of operators.", remedy)
    return frozenset(right for right in GRANTED if right in named)
