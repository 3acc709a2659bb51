"""Why somebody does something: a sentence that every act and every edit has to come with."""

from __future__ import annotations

from recovery.actions.audit import REASON_LIMIT
from recovery.errors import BadOrder


def given(reason: str) -> str:
    """On one line. Raises BadOrder."""
    reason = " ".join(reason.split())
    if not reason:
        raise BadOrder("Give a reason: it is recorded in the audit log.")
    if len(reason) > REASON_LIMIT:
        raise BadOrder(f"The reason is too long: at most {REASON_LIMIT} characters.")
    return reason
