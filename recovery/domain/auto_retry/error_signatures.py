"""Computes an error's signature: its first line without what varies between jobs."""

from __future__ import annotations

import re

from recovery.domain.redaction import redact

LIMIT = 200  # characters; what comes behind tells more of the job than of the error
_JUDGED = 2_000  # characters in which secrets are looked for
# Uuids and long hexadecimal words, then numbers: ids, ports, times, amounts.
_VARYING = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+", re.IGNORECASE)


def signature(reason: str) -> str:
    """Returns the signature: `connect ECONNREFUSED 10.0.0.7:5432` and the same of another host are one error."""
    line = reason.strip().partition("\n")[0]
    return " ".join(_VARYING.sub("#", line).split())[:LIMIT]


def safe_signature(reason: str) -> str:
    """Returns the signature as it is shown and kept: without its digits a key would not be known as a secret."""
    return signature(redact.text(reason.strip().partition("\n")[0][:_JUDGED]))
