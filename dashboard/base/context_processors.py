"""Provides the frame around every page; each part is computed only when a template uses it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db import Error
from django.http import HttpRequest
from django.urls import reverse

from dashboard.accounts.roles import UserRole, allows, role_of
from dashboard.live import state_cache
from dashboard.live.cached_state import SnapshotHealth
from dashboard.stuck.filters import StuckCount
from recovery import config, shared_clock
from recovery.domain.identifiers import printable
from recovery.errors import ConfigError
from recovery.reads.safety_limits import queries as safety_limits_queries
from recovery.reads.scanners import rights_refusals
from recovery.reads.stuck import queries as stuck_queries
from recovery.version import VERSION

_GRANT = "No scanner recovers anything there. Grant the permissions in docs/redis-acl.md, or set read_only for it."
THEMES = ("system", "light", "dark")
THEME_COOKIE = "unstall-theme"


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A page of the navigation: a line here is all that a new page needs."""

    title: str
    route: str
    section: tuple[str, ...]  # names of the routes that belong to it
    keys: str
    role: UserRole = UserRole.VIEWER

    @property
    def url(self) -> str:
        return reverse(self.route)


_IDEMPOTENCY = ("idempotency", "idempotency-key", "idempotency-release", "idempotency-forget")
_SCANNERS = ("scanners", "scanner", "scan-run", "scan-order", "scanner-pause", "policy-edit", "safety-limit-release")
_USERS = ("users", "user-add", "user-role", "user-active", "user-link", "user-two-factor-off", "sessions-all")
PAGES = (
    NavigationEntry("Queues", "overview", ("overview", "queue", "job", "search"), "g q"),
    NavigationEntry("Stuck", "stuck", ("stuck", "act"), "g s"),
    NavigationEntry("Servers", "servers", ("servers", "server"), "g v"),
    NavigationEntry("Logs", "logs", ("logs",), "g l"),
    NavigationEntry("Scanners", "scanners", _SCANNERS, "g c"),
    NavigationEntry("Idempotency", "idempotency", _IDEMPOTENCY, "g o"),
    NavigationEntry("Alerts", "alerts", ("alerts", "alert-test"), "g e"),
    NavigationEntry("Audit", "audit", ("audit", "audit-entry", "audit-restore", "audit-verify", "bulk"), "g a"),
    NavigationEntry("Tuning", "tuning", ("tuning", "drills", "drill", "drill-order"), "g n"),
    NavigationEntry("Users", "users", _USERS, "g u", UserRole.ADMIN),
    NavigationEntry("Tokens", "tokens", ("tokens", "token-make", "token-revoke"), "g k", UserRole.ADMIN),
)


@dataclass(frozen=True, slots=True)
class PageNotice:
    """Important notice above a page."""

    tone: str  # stuck, warn, note
    text: str
    detail: str = ""
    advice: str = ""
    link: str = ""  # what to open, and where that is
    href: str = ""


class PageFrame:
    """Data of the frame around a page; `frame` in every template."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self.version = VERSION
        self.now = shared_clock.now()

    @cached_property
    def theme(self) -> str:
        chosen = self._request.COOKIES.get(THEME_COOKIE, "")
        return chosen if chosen in THEMES else THEMES[0]

    @property
    def themes(self) -> tuple[str, ...]:
        return THEMES

    @cached_property
    def user(self) -> Any:
        """The logged-in user; None without a log-in, and on an error page that precedes authentication."""
        user = getattr(self._request, "user", None)
        return user if role_of(user) else None

    @cached_property
    def pages(self) -> tuple[NavigationEntry, ...]:
        return tuple(page for page in PAGES if allows(self.user, page.role))

    @cached_property
    def stuck(self) -> StuckCount:
        return StuckCount.of(stuck_queries.newest_inbox())

    @cached_property
    def route(self) -> str:
        match = self._request.resolver_match
        return match.url_name or "" if match else ""

    @cached_property
    def config(self) -> config.Config:
        return config.current()

    @property
    def is_production(self) -> bool:
        return self.config.environment_is_production

    @cached_property
    def health(self) -> SnapshotHealth:
        return state_cache.health()

    @cached_property
    def taken_at(self) -> int | None:
        snapshot = state_cache.newest_snapshot()
        return snapshot.taken_at if snapshot else None

    @cached_property
    def deployment(self) -> str:
        """The deployment that this page is about; "" on pages about all."""
        match = self._request.resolver_match
        named = match.kwargs.get("deployment", "") if match else ""
        return named or self._request.GET.get("deployment", "")

    @cached_property
    def notices(self) -> tuple[PageNotice, ...]:
        """Notices about the whole installation, worst first; problems of single queues are on their pages."""
        if self.user is None:
            return ()
        return (
            *self._scheduler(),
            *self._consoles(),
            *self._unreachable(),
            *self._held(),
            *self._warnings(),
            *self._read_only(),
        )

    def _scheduler(self) -> tuple[PageNotice, ...]:
        if self.health.lack:
            return (PageNotice("warn", self.health.lack),)
        if not self.health.reason:
            return ()
        advice = "All numbers below are that old. Start it with: manage.py scheduler"
        return (
            PageNotice("warn", self.health.reason, advice="" if self.health.error or self.health.refuses else advice),
        )

    def _consoles(self) -> tuple[PageNotice, ...]:
        leader = state_cache.leader()
        others = leader.consoles if leader else ()
        return tuple(PageNotice("warn" if one.acts else "note", one.words, advice=one.meaning) for one in others)

    def _unreachable(self) -> tuple[PageNotice, ...]:
        snapshot = state_cache.newest_snapshot()
        dead = [sample for sample in snapshot.deployments if sample.error] if snapshot else []
        return tuple(
            PageNotice(
                "stuck",
                f"{sample.name} does not answer. Trying again.",
                f"{sample.target}: {sample.error}",
                sample.advice,
            )
            for sample in dead
        )

    def _held(self) -> tuple[PageNotice, ...]:
        """Returns a notice per Redis pause: its scanners only report, because Redis itself may be the problem."""
        try:
            holding = [store for store in safety_limits_queries.redis_pauses(self.now) if store.is_holding]
        except (Error, ConfigError):
            return ()  # other notices and pages report this failure
        board = f"{reverse('scanners')}#safety-limits"
        return tuple(
            PageNotice(
                "warn",
                f"Auto-recovery paused on {store.deployment}.",
                advice=" ".join(store.words),
                link="Safety limits",
                href=board,
            )
            for store in holding
        )

    def _warnings(self) -> tuple[PageNotice, ...]:
        """Returns notices of dangerous settings of a store, and of queues missing from its list."""
        snapshot = state_cache.newest_snapshot()
        found = [sample for sample in snapshot.deployments if not sample.error] if snapshot else []
        return tuple(PageNotice("note", f"{sample.name}:", says) for sample in found for says in sample.warnings)

    def _read_only(self) -> tuple[PageNotice, ...]:
        places, found = self.config.places, rights_refusals.newest()
        names = [place.label or place.name for place in places if place.read_only]
        configured = (PageNotice("note", f"Read-only by configuration: {', '.join(names)}."),) if names else ()
        refused = {
            place.label or place.name: refusal
            for place in places
            if not place.read_only and (refusal := rights_refusals.of_deployment(place.name, found))
        }
        return (
            *configured,
            *(
                PageNotice(
                    "note", f"{name} is read-only: its Redis user has no write permission.", printable(one.why), _GRANT
                )
                for name, one in refused.items()
            ),
        )


def frame(request: HttpRequest) -> dict[str, Any]:
    return {"frame": PageFrame(request)}
