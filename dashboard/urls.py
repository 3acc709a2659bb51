"""Defines every URL. Each requires a log-in unless its view says otherwise."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from dashboard.accounts import login_views, session_views, token_views, two_factor_views, user_views
from dashboard.actions import undo_views
from dashboard.actions import views as actions_views
from dashboard.actions.bulk import views as bulk_views
from dashboard.alerts import views as alerts_views
from dashboard.api import urls as api_urls
from dashboard.api import views as api_views
from dashboard.api.view_decorator import api_view
from dashboard.audit import views as audit_views
from dashboard.base import (
    converters,  # noqa: F401 - registers `<name:…>`
    document_views,
    error_pages,
)
from dashboard.base import views as base_views
from dashboard.idempotency import views as idempotency_views
from dashboard.logs import views as logs_views
from dashboard.n8n import views as n8n_views
from dashboard.queues import command_palette
from dashboard.queues.job import views as job_views
from dashboard.queues.overview import views as overview_views
from dashboard.queues.queue import views as queue_views
from dashboard.queues.search import views as search_views
from dashboard.scanners import run_views
from dashboard.scanners import views as scanners_views
from dashboard.scanners.policies import views as policies_views
from dashboard.scanners.safety_limits import views as safety_limits_views
from dashboard.servers import views as servers_views
from dashboard.stuck import views as stuck_views
from dashboard.tuning import views as tuning_views
from dashboard.tuning.drills import views as drills_views

ACCESS = [
    path("login", login_views.login, name="login"),
    path("login/code", login_views.code, name="login-code"),
    path("logout", login_views.logout, name="logout"),
    path("welcome/<str:token>", login_views.welcome, name="welcome"),
    path("password", login_views.password, name="password"),
    path("password/again", login_views.password_again, name="password-again"),
    path("two-factor", two_factor_views.page, name="two-factor"),
    path("two-factor/codes", two_factor_views.new_codes, name="two-factor-codes"),
    path("two-factor/off", two_factor_views.off, name="two-factor-off"),
    path("sessions", session_views.sessions, name="sessions"),
    path("sessions/all", session_views.all_sessions, name="sessions-all"),
    path("sessions/end-others", session_views.end_others, name="sessions-end-others"),
    path("sessions/<int:pk>/end", session_views.end, name="session-end"),
    path("theme", login_views.theme, name="theme"),
    path("users", user_views.users, name="users"),
    path("users/add", user_views.add, name="user-add"),
    path("users/<int:pk>/role", user_views.role, name="user-role"),
    path("users/<int:pk>/active", user_views.active, name="user-active"),
    path("users/<int:pk>/link", user_views.link, name="user-link"),
    path("users/<int:pk>/two-factor-off", user_views.two_factor_off, name="user-two-factor-off"),
    path("tokens", token_views.tokens, name="tokens"),
    path("tokens/make", token_views.make, name="token-make"),
    path("tokens/<int:pk>/revoke", token_views.revoke, name="token-revoke"),
]
PAGES = [
    path("", RedirectView.as_view(pattern_name="overview", http_method_names=["get", "head"]), name="home"),
    path("palette", command_palette.palette, name="palette"),
    path("banner", base_views.banner, name="banner"),
]
_QUEUE = "queues/<str:deployment>/<name:base>/"
_JOB = f"{_QUEUE}jobs/<name:id>"
QUEUES = [
    path("queues", overview_views.page, name="overview"),
    path("queues/rows", overview_views.rows, name="overview-rows"),
    path(_QUEUE, queue_views.page, name="queue"),
    path(f"{_QUEUE}tab", queue_views.tab, name="queue-tab"),
    path(f"{_QUEUE}chart", queue_views.chart, name="queue-chart"),
    path(_JOB, job_views.page, name="job"),
    path(f"{_JOB}/life", job_views.life, name="job-life"),
    path(f"{_JOB}/tab", job_views.tab, name="job-tab"),
    path(f"{_JOB}/log", job_views.log, name="job-log"),
    path(f"{_JOB}/reveal", job_views.reveal, name="job-reveal"),
    path("search", search_views.page, name="search"),
    path("search/part", search_views.part, name="search-part"),
]
API = [
    path("api", api_views.page, name="api-reference"),
    path("api/v1/openapi.json", api_view(api_views.openapi, opens_to_people=True), name="api-document"),
    *api_urls.patterns(),
]
ACTS = [
    path("stuck", stuck_views.page, name="stuck"),
    path("stuck/rows", stuck_views.rows, name="stuck-rows"),
    path("stuck/count", stuck_views.count, name="stuck-count"),
    path("stuck/n8n", n8n_views.page, name="n8n"),
    path("stuck/n8n/rows", n8n_views.rows, name="n8n-rows"),
    path("act", actions_views.act, name="act"),
    path("bulk/<int:pk>", bulk_views.page, name="bulk"),
    path("bulk/<int:pk>/progress", bulk_views.progress, name="bulk-progress"),
    path("bulk/<int:pk>/numbers", bulk_views.numbers, name="bulk-numbers"),
    path("bulk/<int:pk>/stop", bulk_views.stop, name="bulk-stop"),
    path("bulk/<int:pk>/go-on", bulk_views.go_on, name="bulk-go-on"),
    path("audit", audit_views.page, name="audit"),
    path("audit/verify", audit_views.check, name="audit-verify"),
    path("audit/export", audit_views.download, name="audit-export"),
    path("audit/<int:number>", audit_views.entry, name="audit-entry"),
    path("audit/<int:number>/restore", undo_views.restore, name="audit-restore"),
]
SCANNERS = [
    path("scanners", scanners_views.page, name="scanners"),
    path("scanners/now", scanners_views.now, name="scanners-now"),
    path("scanners/policies", policies_views.table, name="policies"),
    path("scanners/policy", policies_views.edit, name="policy-edit"),
    path("scanners/safety-limits/release", safety_limits_views.release, name="safety-limit-release"),
    path("scanners/runs/<int:pk>", scanners_views.run, name="scan-run"),
    path("scanners/runs/<int:pk>/now", scanners_views.finds, name="scan-run-now"),
    path("scanners/<str:scanner>", scanners_views.scanner, name="scanner"),
    path("scanners/<str:scanner>/now", scanners_views.runs, name="scanner-now"),
    path("scanners/<str:scanner>/order", run_views.order, name="scan-order"),
    path("scanners/<str:scanner>/pause", run_views.pause, name="scanner-pause"),
]
SERVERS = [
    path("servers", servers_views.page, name="servers"),
    path("servers/<name:server>", servers_views.server, name="server"),
    path("servers/<name:server>/now", servers_views.now, name="server-now"),
    path("servers/<name:server>/chart", servers_views.chart, name="server-chart"),
]
LOGS = [
    path("logs", logs_views.page, name="logs"),
    path("logs/reveal", logs_views.reveal, name="logs-reveal"),
]
IDEMPOTENCY = [
    path("idempotency", idempotency_views.page, name="idempotency"),
    path("idempotency/rows", idempotency_views.rows, name="idempotency-rows"),
    path("idempotency/keys/<name:key>", idempotency_views.key, name="idempotency-key"),
    path("idempotency/keys/<name:key>/reveal", idempotency_views.reveal, name="idempotency-reveal"),
    path("idempotency/keys/<name:key>/release", idempotency_views.release, name="idempotency-release"),
    path("idempotency/keys/<name:key>/forget", idempotency_views.forget, name="idempotency-forget"),
]
TUNING = [
    path("tuning", tuning_views.page, name="tuning"),
    path("tuning/drill", drills_views.page, name="drills"),
    path("tuning/drill/now", drills_views.now, name="drills-now"),
    path("tuning/drill/order", drills_views.order, name="drill-order"),
    path("tuning/drill/<int:pk>", drills_views.run, name="drill"),
    path("tuning/drill/<int:pk>/now", drills_views.run_now, name="drill-now"),
    path("tuning/drill/<int:pk>/stop", drills_views.stop, name="drill-stop"),
]
DOCUMENTS = [
    path("docs", document_views.index, name="documents"),
    path("docs/<slug:name>", document_views.page, name="document"),
]
ALERTS = [
    path("alerts", alerts_views.page, name="alerts"),
    path("alerts/now", alerts_views.now, name="alerts-now"),
    path("alerts/test/<str:channel>", alerts_views.test, name="alert-test"),
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

handler400 = error_pages.bad_request
handler403 = error_pages.forbidden
handler404 = error_pages.not_found
handler500 = error_pages.internal_error
