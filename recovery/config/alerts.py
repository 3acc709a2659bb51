"""[alerts]: kinds of alerts, after how long and how often they are sent, and the channels that they go to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parseaddr
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recovery.config.schema import ALERTS, EMAIL, WEBHOOK
from recovery.config.validation import ConfigProblems, read_table, secret_file
from recovery.domain.alerts import channels
from recovery.domain.alerts.channels import Alerting, Channel, Mail, MailEncryption, Webhook, WebhookFormat
from recovery.domain.alerts.types import AlertKind, AlertSettings

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_HEADER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,79}")
_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")
_TAKEN = frozenset({"content-type", "content-length", "host", "user-agent", "connection", "transfer-encoding"})
_PORTS = {MailEncryption.STARTTLS: 587, MailEncryption.TLS: 465, MailEncryption.NONE: 25}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def read_alerting(written: Mapping[str, Any], folder: Path, problems: ConfigProblems) -> Alerting:
    values = read_table(written, ALERTS, "alerts.", folder, problems)
    kinds = _kinds(values["kinds"], frozenset(AlertKind), "alerts.kinds", problems)
    terms = AlertSettings(
        kinds,
        _ms(values["after"]),
        _ms(values["gate_after"]),
        _ms(values["calm"]),
        _ms(values["again"]) or None,
        int(values["most"]),
    )
    webhooks = [
        _webhook(table, kinds, f"alerts.webhooks[{number}].", folder, problems)
        for number, table in enumerate(values["webhooks"] or (), 1)
    ]
    found: list[Channel] = [webhook for webhook in webhooks if webhook]
    _check_names(found, problems)
    if mail := _mail(values["email"], kinds, folder, problems):
        found.append(mail)
    return Alerting(terms, tuple(found))


def _webhook(
    written: Mapping[str, Any], kinds: frozenset[AlertKind], where: str, folder: Path, problems: ConfigProblems
) -> Webhook | None:
    values = read_table(written, WEBHOOK, where, folder, problems)
    name, url = values["name"], read_secret(values, "url", where, problems)
    if not _NAME.fullmatch(name):
        problems.add(f"{where}name", f"is {name!r}." if name else "is missing.", "Write up to 40 of a–z, 0–9, - and _.")
    trouble = url_trouble(url)
    if trouble and not ("url_file" in written and not url):  # the problem of the file is reported already
        problems.add(f"{where}url", trouble, "Write http://… or https://…, or url_file.")
    if not _HEADER.fullmatch(values["header"]) or values["header"].lower() in _TAKEN:
        problems.add(f"{where}header", "is not a valid header name.", "Write letters, digits and -, like X-Signature.")
    formats = {one.value: one for one in WebhookFormat}
    if values["format"] not in formats:
        problems.add(f"{where}format", f"is {values['format']!r}.", 'Write "json" or "slack".')
    if values["tls_ca"] and not url.startswith("https://"):
        problems.add(f"{where}tls_ca", "is set, but the URL does not use TLS.", "Write https:// in the URL.")
    if trouble:
        return None
    return Webhook(
        name=name,
        url=url,
        format=formats.get(values["format"], WebhookFormat.JSON),
        header=values["header"],
        secret=read_secret(values, "secret", where, problems),
        ca=values["tls_ca"],
        kinds=_kinds(values["kinds"], kinds, f"{where}kinds", problems),
    )


def _mail(written: Any, kinds: frozenset[AlertKind], folder: Path, problems: ConfigProblems) -> Mail | None:
    if not isinstance(written, Mapping):
        return None
    where = "alerts.email."
    values = read_table(written, EMAIL, where, folder, problems)
    if not _HOST.fullmatch(values["host"]):
        problems.add(
            f"{where}host", "is not a host." if values["host"] else "is missing.", "Write the mail server's name."
        )
    for key in ("from", "to"):
        given = (values[key],) if key == "from" else values[key]
        if not given or not all(map(_is_address, given)):
            problems.add(
                f"{where}{key}", "is not a valid address." if any(given) else "is missing.", "Write name@example.com."
            )
    encryptions = {one.value: one for one in MailEncryption}
    encryption = encryptions.get(values["encryption"])
    if encryption is None:
        problems.add(f"{where}encryption", f"is {values['encryption']!r}.", 'Write "starttls", "tls" or "none".')
        encryption = MailEncryption.STARTTLS
    password = read_secret(values, "password", where, problems)
    _check_login(values, password, encryption, where, problems)
    return Mail(
        host=values["host"],
        port=int(values["port"]) or _PORTS[encryption],
        encryption=encryption,
        sender=values["from"],
        to=values["to"],
        username=values["username"],
        password=password,
        ca=values["tls_ca"],
        kinds=_kinds(values["kinds"], kinds, f"{where}kinds", problems),
    )


def _check_login(
    values: Mapping[str, Any], password: str, encryption: MailEncryption, where: str, problems: ConfigProblems
) -> None:
    if bool(values["username"]) != bool(password) and not values["password_file"]:
        missing = "password_file" if values["username"] else "username"
        problems.add(f"{where}{missing}", "is missing.", "A login needs both values.")
    if encryption is not MailEncryption.NONE:
        return
    if values["tls_ca"]:
        problems.add(f"{where}tls_ca", "is set, but encryption is none.", "Remove one of the two.")
    if values["username"] and values["host"] not in _LOOPBACK:
        problems.add(
            f"{where}encryption", "is none, and the password would be sent unencrypted.", 'Write "starttls" or "tls".'
        )


def _check_names(found: list[Channel], problems: ConfigProblems) -> None:
    names = [channel.name for channel in found]
    for name in sorted({name for name in names if names.count(name) > 1}):
        problems.add("alerts.webhooks", f"has {name!r} twice.", "Give each a unique name.")
    if channels.EMAIL in names:
        problems.add("alerts.webhooks", f"has one named {channels.EMAIL!r}.", "That is the name of [alerts.email].")


def _kinds(
    written: tuple[str, ...], otherwise: frozenset[AlertKind], where: str, problems: ConfigProblems
) -> frozenset[AlertKind]:
    """Returns the kinds that are written; `otherwise` when none is."""
    known = {kind.value: kind for kind in AlertKind}
    strange = [name for name in written if name not in known]
    if strange:
        problems.add(where, f"holds {strange[0]!r}.", f"Known: {', '.join(known)}.")
    return frozenset(known[name] for name in written if name in known) or otherwise


def read_secret(values: Mapping[str, Any], name: str, where: str, problems: ConfigProblems) -> str:
    value, path = str(values[name]), str(values[f"{name}_file"])
    if value and path:
        problems.add(f"{where}{name}_file", f"is set, and {name} too.", "Set one of the two.")
    return value if value or not path else secret_file(path, f"{where}{name}_file", problems)


def url_trouble(url: str) -> str:
    """Returns what is wrong with the URL. It is never quoted: the path of some is the secret."""
    if not url:
        return "is missing."
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "cannot be read."
    return "" if is_good and url.isascii() and url.isprintable() and " " not in url else "is not a webhook address."


def _is_address(written: str) -> bool:
    """Returns True for `ops@example.com` or `Ops <ops@example.com>`, in one line."""
    _, address = parseaddr(written)
    name, at, host = address.rpartition("@")
    return bool(name and at and host) and written.isprintable() and "," not in written and " " not in address


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
