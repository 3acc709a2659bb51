"""Every address. Whatever stands here asks for a login unless its view says otherwise."""

from __future__ import annotations

from django.urls import path
from django.views.generic import RedirectView

from dashboard import converters  # noqa: F401 - registers `<name:…>`
from dashboard.views import access, banner, errors, health, job, overview, palette, queue, search, users

ACCESS = [
    path("login", access.login, name="login"),
    path("logout", access.logout, name="logout"),
    path("welcome/<str:token>", access.welcome, name="welcome"),
    path("password", access.password, name="password"),
    path("theme", access.theme, name="theme"),
    path("users", users.users, name="users"),
    path("users/add", users.add, name="user-add"),
    path("users/<int:pk>/role", users.role, name="user-role"),
    path("users/<int:pk>/active", users.active, name="user-active"),
    path("users/<int:pk>/link", users.link, name="user-link"),
]
PROBES = [
    path("healthz", health.alive, name="healthz"),
    path("readyz", health.ready, name="readyz"),
]
PAGES = [
    path("", RedirectView.as_view(pattern_name="overview"), name="home"),
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
    path("search", search.page, name="search"),
    path("search/part", search.part, name="search-part"),
]
urlpatterns = [*ACCESS, *PROBES, *PAGES, *QUEUES]

handler400 = errors.bad_request
handler403 = errors.forbidden
handler404 = errors.not_found
handler500 = errors.broken
