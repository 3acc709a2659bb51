"""[audit]: targets that the heads of the audit's chain are sent to, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from recovery.config.alerts import read_secret, url_trouble
from recovery.config.schema import AUDIT
from recovery.config.validation import ConfigProblems, read_table
from recovery.domain.alerts.channels import Webhook
from recovery.domain.audit.head_targets import AuditHeadTargets
from recovery.domain.time_units import SECOND

_WHERE = "audit."


def read_audit(written: Mapping[str, Any], folder: Path, problems: ConfigProblems) -> AuditHeadTargets:
    values = read_table(written, AUDIT, _WHERE, folder, problems)
    url = read_secret(values, "url", _WHERE, problems)
    secret = read_secret(values, "secret", _WHERE, problems)
    if url and (trouble := url_trouble(url)):
        problems.add(f"{_WHERE}url", trouble, "Write http://… or https://…, or url_file.")
        url = ""
    if values["tls_ca"] and not url.startswith("https://"):
        problems.add(f"{_WHERE}tls_ca", "is set, but the URL does not use TLS.", "Write https:// in the URL.")
    return AuditHeadTargets(
        every=round(values["head_every"] * SECOND),
        file=_file(values["file"], folder, problems),
        syslog=_syslog(values["syslog"], problems),
        webhook=Webhook("audit heads", url, secret=secret, ca=values["tls_ca"]) if url else None,
    )


def _file(written: str, folder: Path, problems: ConfigProblems) -> str:
    """Returns the path of the file. It is made when the first head is written; its directory has to exist."""
    if not written:
        return ""
    path = folder / Path(written).expanduser()
    if not path.parent.is_dir() or path.is_dir():
        problems.add(
            f"{_WHERE}file", f"names {path}, which cannot be a file.", "Write a path in an existing directory."
        )
    return str(path)


def _syslog(written: str, problems: ConfigProblems) -> str:
    try:
        parts = urlsplit(written)
        is_remote = parts.scheme in ("udp", "tcp") and bool(parts.hostname) and parts.port != 0 and not parts.path
    except ValueError:
        is_remote = False
    if written and not is_remote and not written.startswith("/"):
        problems.add(f"{_WHERE}syslog", f"is {written!r}.", "Write /dev/log, udp://HOST:514 or tcp://HOST:PORT.")
        return ""
    return written
