"""What scanners leave behind, in the database of a site: a run with its finds, and safety limits that hold."""

from __future__ import annotations

import json

from recovery import shared_clock
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.auto_retry.rules import RetryHistory
from recovery.domain.identifiers import slug
from recovery.domain.safety_limits.circuit_breaker import AutoRetryOutcome, CircuitBreaker
from recovery.domain.safety_limits.redis_pause import RedisObservation, RedisPause
from recovery.reads.safety_limits.limit_rows import breaker_key
from tests.browser.seeds import NASTY, NASTY_ID, SECRET
from tests.support.processes.site import Site

_HOUR = 3_600_000
_ERROR = f"connect ECONNREFUSED {NASTY[0]} token={SECRET}"


def trip(site: Site, base: str, error: str = "connect ECONNREFUSED") -> None:
    """An open breaker."""
    at, breaker = _now(), CircuitBreaker(error)
    for number in range(20):
        breaker = breaker.retried(str(number), at, 1).settled(str(number), AutoRetryOutcome.FAILED, at, error)
    _limit(site, "breaker", base, breaker_key(error), breaker.as_json())


def story(site: Site, base: str) -> str:
    """A run that acted on a queue, and every kind of safety limit on it; the address of the run."""
    trip(site, base, _ERROR)
    past = RetryHistory().retried(_now() - 3).retried(_now() - 2).retried(_now() - 1)
    _limit(site, "past", base, job_key(NASTY_ID), past.as_json(), version=3)
    _limit(site, "budget", base, "", {"slots": [[_now() // 1000 * 1000, 10]], "limit": [10, 300]})
    for number in range(3):
        _orphaned(site, base, NASTY_ID, _now() - number * _HOUR)
    _alert(site, base)
    return _run(site, base)


def hold(site: Site) -> None:
    """The store of `main`, as if it had lost its locks."""
    pause = RedisPause(run_id="x").seen(RedisObservation(_now(), active=400, lost=380))
    site.web.change("DELETE FROM recovery_brakestate WHERE kind = 'store'")
    _limit(site, "store", "", "", pause.as_json())


def _run(site: Site, base: str) -> str:
    at = _now()
    site.web.change(
        "INSERT INTO recovery_scanrun (scanner, status, dry_run, deployment, base, actor, reason, epoch, wanted_at,"
        " started_at, ended_at, looked, found, acted, refused, holds, trouble)"
        " VALUES ('stale-check', 'ended', 0, '', '', '', '', 4711, ?, ?, ?, 1204, 3, 1, 1, ?, ?)",
        *(at, at, at + 3200, json.dumps([f"The budget of {base} is used up."]), f"{base}: {_ERROR}"),
    )
    ((run,),) = site.web.ask("SELECT max(id) FROM recovery_scanrun WHERE epoch = 4711")
    for act, outcome, why in (("requeue", "done", ""), ("requeue", "refused", _ERROR), ("", "", "")):
        site.web.change(
            "INSERT INTO recovery_scanfind (run_id, deployment, base, job, what, act, outcome, why, policy, audit)"
            " VALUES (?, 'main', ?, ?, ?, ?, ?, ?, ?, NULL)",
            *(run, slug(base), job_key(NASTY_ID), f"unlocked for 18 min, {_ERROR}", act, outcome, why),
            "Enabled after 15 min, at most 500 jobs per run (by default).",
        )
    return f"/scanners/runs/{run}"


def _alert(site: Site, base: str) -> None:
    """One that is over."""
    site.web.change(
        "INSERT INTO recovery_alert (kind, key, words, link, size, since, seen_at, resolved_at, is_settled, deliveries)"
        " VALUES ('quarantine', ?, ?, '/stuck', 3, ?, ?, ?, 1, ?)",
        *(slug(base), f"3 jobs of main/{base} are quarantined.", _now() - _HOUR, _now() - 60_000, _now()),
        json.dumps({"ops": ["resolved", _now(), 3, 2, None]}),
    )


def _orphaned(site: Site, base: str, id: str, at: int) -> None:
    site.web.change(
        "INSERT INTO recovery_incident (deployment, base, job, name, kind, cause, evidence, holder, server, opened_at,"
        " proven_at, closed_at, resolved_by, audit)"
        " VALUES ('main', ?, ?, 'resize', 'orphan', '', '', '', '', ?, ?, ?, 'scanner', NULL)",
        *(slug(base), job_key(id), at - 9000, at - 5000, at),
    )


def _limit(site: Site, kind: str, base: str, key: str, state: object, *, version: int = 1) -> None:
    site.web.change(
        "INSERT INTO recovery_brakestate (kind, deployment, base, key, state, version, at)"
        " VALUES (?, 'main', ?, ?, ?, ?, ?)",
        *(kind, slug(base) if base else "", key, json.dumps(state), version, _now()),
    )


def _now() -> int:
    return shared_clock.now()
