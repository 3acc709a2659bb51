"""What many failures have in common: the first line of the error without what differs from job to job."""

from __future__ import annotations

import re

LIMIT = 200  # characters; what comes behind tells more of the job than of the error
# Uuids and long hexadecimal words, then numbers: ids, ports, times, amounts.
_VARYING = re.compile(r"\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b|\d+", re.IGNORECASE)


def signature(reason: str) -> str:
    """`connect ECONNREFUSED 10.0.0.7:5432` and the same of another host are one error."""
    line = reason.strip().partition("\n")[0]
    return " ".join(_VARYING.sub("#", line).split())[:LIMIT]
