"""Reason of an action: a sentence that every action and every edit has to come with."""

from __future__ import annotations

from recovery.actions.audit.audit_log import REASON_LIMIT
from recovery.errors import BadOrder


def require_reason(reason: str) -> str:
    """Returns the reason on one line. Raises BadOrder if it is missing or too long."""
    reason = " ".join(reason.split())
    if not reason:
        raise BadOrder("Give a reason: it is recorded in the audit log.")
    if len(reason) > REASON_LIMIT:
        raise BadOrder(f"The reason is too long: at most {REASON_LIMIT} characters.")
    return reason
