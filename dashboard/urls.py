"""Defines every URL. Each requires a log-in unless its view says otherwise."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from dashboard import converters  # noqa: F401 - registers `<name:…>`
from dashboard.api import root
from dashboard.api.door import door
from dashboard.views import (
    access,
    act,
    alerts,
    audit,
    banner,
    brakes,
    bulk,
    documents,
    drill,
    errors,
    idempotency,
    job,
    logs,
    n8n,
    overview,
    palette,
    policies,
    queue,
    reference,
    restore,
    scan,
    scanners,
    search,
    servers,
    sessions,
    stuck,
    tokens,
    tuning,
    two_factor,
    users,
)

ACCESS = [
    path("login", access.login, name="login"),
    path("login/code", access.code, name="login-code"),
    path("logout", access.logout, name="logout"),
    path("welcome/<str:token>", access.welcome, name="welcome"),
    path("password", access.password, name="password"),
    path("password/again", access.password_again, name="password-again"),
    path("two-factor", two_factor.page, name="two-factor"),
    path("two-factor/codes", two_factor.new_codes, name="two-factor-codes"),
    path("two-factor/off", two_factor.off, name="two-factor-off"),
    path("sessions", sessions.sessions, name="sessions"),
    path("sessions/all", sessions.of_all, name="sessions-all"),
    path("sessions/end-others", sessions.end_others, name="sessions-end-others"),
    path("sessions/<int:pk>/end", sessions.end, name="session-end"),
    path("theme", access.theme, name="theme"),
    path("users", users.users, name="users"),
    path("users/add", users.add, name="user-add"),
    path("users/<int:pk>/role", users.role, name="user-role"),
    path("users/<int:pk>/active", users.active, name="user-active"),
    path("users/<int:pk>/link", users.link, name="user-link"),
    path("users/<int:pk>/two-factor-off", users.two_factor_off, name="user-two-factor-off"),
    path("tokens", tokens.tokens, name="tokens"),
    path("tokens/make", tokens.make, name="token-make"),
    path("tokens/<int:pk>/revoke", tokens.revoke, name="token-revoke"),
]
PAGES = [
    path("", RedirectView.as_view(pattern_name="overview", http_method_names=["get", "head"]), name="home"),
    path("palette", palette.palette, name="palette"),
    path("banner", banner.banner, name="banner"),
]
_QUEUE = "queues/<str:deployment>/<name:base>/"
_JOB = f"{_QUEUE}jobs/<name:id>"
QUEUES = [
    path("queues", overview.page, name="overview"),
    path("queues/rows", overview.rows, name="overview-rows"),
    path(_QUEUE, queue.page, name="queue"),
    path(f"{_QUEUE}tab", queue.tab, name="queue-tab"),
    path(f"{_QUEUE}chart", queue.chart, name="queue-chart"),
    path(_JOB, job.page, name="job"),
    path(f"{_JOB}/life", job.life, name="job-life"),
    path(f"{_JOB}/tab", job.tab, name="job-tab"),
    path(f"{_JOB}/log", job.log, name="job-log"),
    path(f"{_JOB}/reveal", job.reveal, name="job-reveal"),
    path("search", search.page, name="search"),
    path("search/part", search.part, name="search-part"),
]
API = [
    path("api", reference.page, name="api-reference"),
    path("api/v1/openapi.json", door(reference.openapi, opens_to_people=True), name="api-document"),
    *root.patterns(),
]
ACTS = [
    path("stuck", stuck.page, name="stuck"),
    path("stuck/rows", stuck.rows, name="stuck-rows"),
    path("stuck/count", stuck.count, name="stuck-count"),
    path("stuck/n8n", n8n.page, name="n8n"),
    path("stuck/n8n/rows", n8n.rows, name="n8n-rows"),
    path("act", act.act, name="act"),
    path("bulk/<int:pk>", bulk.page, name="bulk"),
    path("bulk/<int:pk>/progress", bulk.progress, name="bulk-progress"),
    path("bulk/<int:pk>/numbers", bulk.numbers, name="bulk-numbers"),
    path("bulk/<int:pk>/stop", bulk.stop, name="bulk-stop"),
    path("bulk/<int:pk>/go-on", bulk.go_on, name="bulk-go-on"),
    path("audit", audit.page, name="audit"),
    path("audit/verify", audit.check, name="audit-verify"),
    path("audit/export", audit.download, name="audit-export"),
    path("audit/<int:number>", audit.entry, name="audit-entry"),
    path("audit/<int:number>/restore", restore.restore, name="audit-restore"),
]
SCANNERS = [
    path("scanners", scanners.page, name="scanners"),
    path("scanners/now", scanners.now, name="scanners-now"),
    path("scanners/policies", policies.table, name="policies"),
    path("scanners/policy", policies.edit, name="policy-edit"),
    path("scanners/safety-limits/release", brakes.release, name="brake-release"),
    path("scanners/runs/<int:pk>", scanners.run, name="scan-run"),
    path("scanners/runs/<int:pk>/now", scanners.finds, name="scan-run-now"),
    path("scanners/<str:scanner>", scanners.scanner, name="scanner"),
    path("scanners/<str:scanner>/now", scanners.runs, name="scanner-now"),
    path("scanners/<str:scanner>/order", scan.order, name="scan-order"),
    path("scanners/<str:scanner>/pause", scan.pause, name="scanner-pause"),
]
SERVERS = [
    path("servers", servers.page, name="servers"),
    path("servers/<name:server>", servers.server, name="server"),
    path("servers/<name:server>/now", servers.now, name="server-now"),
    path("servers/<name:server>/chart", servers.chart, name="server-chart"),
]
LOGS = [
    path("logs", logs.page, name="logs"),
    path("logs/reveal", logs.reveal, name="logs-reveal"),
]
IDEMPOTENCY = [
    path("idempotency", idempotency.page, name="idempotency"),
    path("idempotency/rows", idempotency.rows, name="idempotency-rows"),
    path("idempotency/keys/<name:key>", idempotency.key, name="idempotency-key"),
    path("idempotency/keys/<name:key>/reveal", idempotency.reveal, name="idempotency-reveal"),
    path("idempotency/keys/<name:key>/release", idempotency.release, name="idempotency-release"),
    path("idempotency/keys/<name:key>/forget", idempotency.forget, name="idempotency-forget"),
]
TUNING = [
    path("tuning", tuning.page, name="tuning"),
    path("tuning/drill", drill.page, name="drills"),
    path("tuning/drill/now", drill.now, name="drills-now"),
    path("tuning/drill/order", drill.order, name="drill-order"),
    path("tuning/drill/<int:pk>", drill.run, name="drill"),
    path("tuning/drill/<int:pk>/now", drill.run_now, name="drill-now"),
    path("tuning/drill/<int:pk>/stop", drill.stop, name="drill-stop"),
]
DOCUMENTS = [
    path("docs", documents.index, name="documents"),
    path("docs/<slug:name>", documents.page, name="document"),
]
ALERTS = [
    path("alerts", alerts.page, name="alerts"),
    path("alerts/now", alerts.now, name="alerts-now"),
    path("alerts/test/<str:channel>", alerts.test, name="alert-test"),
]
urlpatterns = [
    *ACCESS,
    *PAGES,
    *QUEUES,
    *ACTS,
    *SCANNERS,
    *ALERTS,
    *SERVERS,
    *LOGS,
    *IDEMPOTENCY,
    *TUNING,
    *DOCUMENTS,
    *API,
]

handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler500 = errors.broken
