"""Reads one table of the file (or one URL of the environment) into one Deployment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recovery.config.addresses.redis_urls import BadRedisUrl, RedisUrl, parse, with_login
from recovery.config.schema import DEPLOYMENT, STATE
from recovery.config.types import Deployment, DeploymentMode, StoreLogin, Tls
from recovery.config.validation import ConfigProblems, read_table, secret_file

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")  # it stands in addresses of pages and in DEPLOYMENT/BASE
_TLS_KEYS = ("tls_ca", "tls_certificate", "tls_key")


@dataclass(frozen=True, slots=True)
class StoreConfigSource:
    """Table in which a store is described. `url_key` is set when it is one variable of the environment."""

    where: str
    written: Mapping[str, Any]
    folder: Path
    url_key: str = ""

    def key(self, name: str) -> str:
        return self.url_key or f"{self.where}{name}"


def read_deployment(source: StoreConfigSource, problems: ConfigProblems) -> Deployment | None:
    """Returns the deployment, or None if its URL cannot be used; the problems say why."""
    values = read_table(source.written, DEPLOYMENT, source.where, source.folder, problems)
    name = _name(source, values["name"], problems)
    store = _store(source, values, name, problems)
    sentinel_password = _secret(source, values, "sentinel_password", problems)
    if store is None:
        return None
    if store.mode is not DeploymentMode.SENTINEL and (values["sentinel_username"] or sentinel_password):
        problems.add(
            source.key("sentinel_password"), "is set, but the URL names no Sentinel.", "Remove it, or fix the URL."
        )
    return _replaced(
        store,
        label=values["label"] or name,
        sentinel_login=StoreLogin(values["sentinel_username"], sentinel_password),
        queues=values["queues"],
        prefixes=values["prefixes"],
        read_only=values["read_only"],
    )


def read_state(source: StoreConfigSource, problems: ConfigProblems) -> Deployment | None:
    """Reads the state store, shaped like a deployment named `state`."""
    values = read_table(source.written, STATE, source.where, source.folder, problems)
    store = _store(source, values, "state", problems)
    if store is not None and store.mode is not DeploymentMode.SINGLE:
        problems.add(
            source.key("url"),
            f"is a {store.mode.value.title()}, but the state store must be a single server.",
            "Write redis://, rediss:// or unix://; if its data is lost, no job and no audit entry is lost.",
        )
    return store


def _replaced(store: Deployment, **changes: Any) -> Deployment:
    return Deployment(**{name: getattr(store, name) for name in Deployment.__slots__} | changes)


def _name(source: StoreConfigSource, name: str, problems: ConfigProblems) -> str:
    if not _NAME.fullmatch(name):
        problem = f"is {name!r}." if name else "is missing."
        problems.add(
            source.key("name"), problem, "Write up to 40 of a–z, 0–9, - and _, beginning with a letter or digit."
        )
    return name


def _store(
    source: StoreConfigSource, values: Mapping[str, Any], name: str, problems: ConfigProblems
) -> Deployment | None:
    url = _secret(source, values, "url", problems)
    password = _secret(source, values, "password", problems)
    if not url:
        if "url_file" not in source.written and isinstance(source.written.get("url", ""), str):
            problems.add(source.key("url"), "is missing.", "Write url or url_file.")
        return None
    try:
        place = parse(url)
    except BadRedisUrl as error:
        problems.add(source.key("url"), error.problem, error.remedy)
        return None
    login = _login(source, values, place, password, problems)
    return Deployment(
        name=name,
        label=name,
        mode=place.mode,
        url=with_login(url, login) if password else url,
        nodes=place.nodes,
        database=place.database,
        login=login,
        tls=_tls(source, values, place, problems),
        sentinel_master=place.master,
        timeout=values["timeout"],
    )


def _secret(source: StoreConfigSource, values: Mapping[str, Any], name: str, problems: ConfigProblems) -> str:
    value, path = str(values[name]), str(values[f"{name}_file"])
    if value and path:
        problems.add(source.key(f"{name}_file"), f"is set, and {name} too.", "Set one of the two.")
    if value or not path:
        return value
    return secret_file(path, source.key(f"{name}_file"), problems)


def _login(
    source: StoreConfigSource, values: Mapping[str, Any], place: RedisUrl, password: str, problems: ConfigProblems
) -> StoreLogin:
    username = values["username"]
    if place.login and (username or password):
        problems.add(source.key("password"), "is set, but the URL has a login too.", "Set it in one of the two.")
    if username and not password and not place.login:
        problems.add(source.key("username"), "is set without a password.", "Add password or password_file.")
    return StoreLogin(username, password) if password else place.login


def _tls(source: StoreConfigSource, values: Mapping[str, Any], place: RedisUrl, problems: ConfigProblems) -> Tls | None:
    tls = Tls(values["tls_ca"], values["tls_certificate"], values["tls_key"], values["tls_verify"])
    if not place.encrypted:
        for key in (*_TLS_KEYS, "tls_verify"):
            if key in source.written:
                problems.add(source.key(key), "is set, but the URL does not use TLS.", "Write rediss:// in the URL.")
        return None
    if bool(tls.certificate) != bool(tls.key):
        missing = "tls_key" if tls.certificate else "tls_certificate"
        problems.add(source.key(missing), "is missing.", "A client certificate needs both, and its key.")
    if tls.ca and not tls.verify:
        problems.add(source.key("tls_ca"), "is set, but tls_verify is false.", "Remove one of the two.")
    return tls
