"""Maps names in audit entries of earlier versions to the present ones. The entries are hashed and stay as they are;
pages, API and shell show the present name, and find both by it.
"""

from __future__ import annotations

from collections.abc import Mapping

ACTS: Mapping[str, str] = {
    "sign in": "log in",
    "sign out": "log out",
    "sign in failed": "failed log-in",
    "let scanner go on": "resume scanner",
    "release brake": "release safety limit",
    "ledger not changed": "claim not changed",
    "relaunch": "retry-execution",
}
SCANNERS: Mapping[str, str] = {"relaunch-failed": "auto-retry"}


def present(written: str, names: Mapping[str, str]) -> str:
    """Returns the present name."""
    return names.get(written, written)


def spellings(name: str, names: Mapping[str, str]) -> tuple[str, ...]:
    """Returns all names under which entries may be found."""
    return name, *(former for former, now in names.items() if now == name)
