"""Probes. They tell an orchestrator whether to restart us (alive) or to send people elsewhere (ready), no more."""

from __future__ import annotations

import logging
import time

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse

from dashboard.live import mirror
from dashboard.models import User
from recovery import config
from recovery.domain.scans import Scan
from recovery.reads.pulses import Pulse
from recovery.reads.scans import every, is_late

log = logging.getLogger(__name__)


@login_not_required
def alive(request: HttpRequest) -> HttpResponse:
    """The process answers, and says how long ago each scanner last succeeded; null where it is not known.

    No I/O: neither a dead Redis nor a scanner that fails is a reason to restart us.
    """
    return _uncached(JsonResponse({"alive": True, "scanners": _scanners(int(time.time() * 1000))}))


@login_not_required
def ready(request: HttpRequest) -> HttpResponse:
    """Database, state store and a fresh snapshot. Says which is missing, never where it lives."""
    reasons = [reason for reason in (_database(), *_snapshot()) if reason]
    body = {"ready": not reasons, "reasons": reasons}
    return _uncached(JsonResponse(body, status=503 if reasons else 200))


def _scanners(now: int) -> dict[str, dict[str, object]] | None:
    known = mirror.pulses()
    if known is None:
        return None
    return {scan.value: _succeeded(scan, known[scan], now) for scan in Scan if scan in known}


def _succeeded(scan: Scan, pulse: Pulse, now: int) -> dict[str, object]:
    at = pulse.succeeded_at
    return {
        "succeeded_ms_ago": None if at is None else max(0, now - at),
        "late": is_late(every(config.current(), scan), at, now),
    }


def _database() -> str:
    """A read of a real table: an empty file in the place of the database answers everything else."""
    try:
        User.objects.exists()
    except DatabaseError:
        log.warning("not ready: the database does not answer", exc_info=True)
        return "database: does not answer"
    finally:
        connection.close_if_unusable_or_obsolete()
    return ""


def _snapshot() -> tuple[str, ...]:
    health = mirror.health()
    if health.error:
        return ("state store: does not answer",)
    if health.snapshot_age_ms is None:
        return ("snapshot: none yet",)
    if health.stale:
        return (f"snapshot: {health.snapshot_age_ms // 1000} s old",)
    return ()


def _uncached(response: HttpResponse) -> HttpResponse:
    response["Cache-Control"] = "no-store"
    return response
