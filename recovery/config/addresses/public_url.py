"""Public URL of the pages, for links in messages."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from recovery.config.validation import ConfigProblems


def read_public_url(environ: Mapping[str, str], problems: ConfigProblems) -> str:
    """Reads UNSTALL_PUBLIC_URL, else the first of the trusted origins; "" when neither is set."""
    written = environ.get("UNSTALL_PUBLIC_URL", "").strip()
    if written and not _is_good(written):
        problems.add("UNSTALL_PUBLIC_URL", "is not a web address.", "Write https://unstall.example.com")
        return ""
    first = environ.get("UNSTALL_TRUSTED_ORIGINS", "").partition(",")[0].strip()
    return (written or (first if _is_good(first) else "")).rstrip("/")


def _is_good(written: str) -> bool:
    try:
        parts = urlsplit(written)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    except ValueError:
        return False
