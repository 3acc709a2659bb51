"""Pages for login and logout, one-time links, the user's own password, and the theme."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import HASH_SESSION_KEY, update_session_auth_hash
from django.contrib.auth import login as log_in
from django.contrib.auth import logout as log_out
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme, urlencode
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.accounts import actors, invitations, login_limits, reauthentication, two_factor, user_changes
from dashboard.accounts.failed_logins import failed_logins
from dashboard.accounts.forms import CodeForm, ConfirmPasswordForm, LoginForm, OwnPasswordForm, ThemeForm, WelcomeForm
from dashboard.accounts.login_limits import LoginFailureBucket, LoginFailureKind
from dashboard.accounts.roles import UserRole
from dashboard.base.context_processors import THEME_COOKIE
from dashboard.models import User
from dashboard.server.page_concurrency import hashes_password
from recovery.actions.audit import audit_log
from recovery.errors import NotRecorded

log = logging.getLogger(__name__)

_BACKEND = "django.contrib.auth.backends.ModelBackend"
_THEME_AGE = timedelta(days=365)
_PENDING = "signing_in"  # in the session: the user whose password was right, while the code is awaited
PENDING_SECONDS = 300


class LoginPage(LoginView):
    template_name = "accounts/login/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        nobody = not User.objects.filter(role=UserRole.ADMIN, is_active=True).exists()
        return super().get_context_data(**kwargs, nobody=nobody)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        return _sign_in(self.request, form.get_user(), self.get_success_url())


login = hashes_password(LoginPage.as_view())


class LogoutPage(LogoutView):
    def post(self, request: HttpRequest, *args: str, **kwargs: Any) -> HttpResponse:
        """Logs the user out, even if the audit cannot be written."""
        try:
            audit_log.note(actors.actor_from_request(request), "log out")
        except NotRecorded as error:
            log.warning("a log-out is not in the audit: %s", error)
        return super().post(request, *args, **kwargs)


logout = LogoutPage.as_view()


@hashes_password
@login_not_required
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def welcome(request: HttpRequest, token: str) -> HttpResponse:
    """Lets a user set a password by a one-time link. A GET does not use the link up: mail programs open links."""
    try:
        link = invitations.find(token)
        form = WelcomeForm(request.POST or None, user=link.user)
        if not form.is_valid():
            status = 422 if form.is_bound else 200
            return render(request, "accounts/login/welcome.html", {"form": form, "person": link.user}, status=status)
        user = invitations.accept(token, **form.cleaned_data)
    except invitations.LinkSpent:
        return render(request, "accounts/login/spent.html", status=404)
    return _sign_in(request, user, reverse(settings.LOGIN_REDIRECT_URL), "By a one-time link.")


def _sign_in(request: HttpRequest, user: User, to: str, how: str = "") -> HttpResponse:
    """Logs in a user whose password was right; asks for the code first if they have a second factor."""
    if not two_factor.is_on(user):
        return _signed_in(request, user, to, how)
    request.session.cycle_key()
    known = {"user": user.pk, "hash": user.get_session_auth_hash()}
    request.session[_PENDING] = {**known, "at": int(time.time()), "how": how}
    return redirect(f"{reverse('login-code')}?{urlencode({'next': to})}")


def _signed_in(request: HttpRequest, user: User, to: str, how: str) -> HttpResponse:
    """Logs a user in and records it in the audit, in one transaction: no login is missing there."""
    with transaction.atomic():
        log_in(request, user, backend=_BACKEND)
        audit_log.note(actors.actor_from_request(request), "log in", how)
    login_limits.forget(login_limits.login_buckets(request, user.username))
    response = HttpResponseRedirect(to)
    login_limits.remember_browser(response, user)
    return response


@login_not_required
@sensitive_post_parameters("code")
@require_http_methods(["GET", "POST"])
def code(request: HttpRequest) -> HttpResponse:
    """Asks for the second step of a login: a code of the authenticator, or a recovery code."""
    user = _pending(request)
    if user is None:
        return redirect("login")
    form, bucket = CodeForm(request.POST or None), LoginFailureBucket(LoginFailureKind.CODE, str(user.pk))
    login_limits.check([bucket])
    if form.is_valid():
        if taken := two_factor.accept(user, form.cleaned_data["code"]):
            login_limits.forget([bucket])
            how = f"{request.session.pop(_PENDING)['how']} With a {taken}.".strip()
            return _signed_in(request, user, _place(request), how)
        begun = tuple(one.kind for one in login_limits.count([bucket]))
        failed_logins.add(login_limits.address_of(request), user.username, "code", begun)
        form.add_error("code", "This code is wrong or was already used.")
    return render(request, "accounts/login/code.html", {"form": form}, status=422 if form.is_bound else 200)


def _pending(request: HttpRequest) -> User | None:
    """Returns the user whose password was right within PENDING_SECONDS and has not changed since."""
    kept = request.session.get(_PENDING)
    if not kept or time.time() - kept["at"] > PENDING_SECONDS:
        return None
    user = User.objects.filter(pk=kept["user"], is_active=True).exclude(two_factor_seed="").first()
    return user if user and constant_time_compare(user.get_session_auth_hash(), kept["hash"]) else None


@hashes_password
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def password(request: HttpRequest) -> HttpResponse:
    """Changes the user's own password, which ends all their other sessions."""
    form = OwnPasswordForm(request.user, request.POST or None)
    if _checked(request, form):
        user = form.save()
        update_session_auth_hash(request, user)
        reauthentication.note(request)
        user_changes.end_sessions(user, but=request.session.session_key)
        audit_log.note(actors.actor_from_request(request), "own password")
        messages.success(request, "Your password was changed. Your sessions in other browsers were ended.")
        return redirect("password")
    if not request.user.is_authenticated:
        return redirect("login")
    return render(request, "accounts/login/password.html", {"form": form}, status=422 if form.is_bound else 200)


@hashes_password
@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def password_again(request: HttpRequest) -> HttpResponse:
    """Asks for the password again, before a change that a stolen session must not make."""
    form = ConfirmPasswordForm(request.user, request.POST or None)
    if _checked(request, form):
        # Checking it may have renewed its hash, as newer versions of Django make them, which would end this session.
        request.session[HASH_SESSION_KEY] = cast(User, request.user).get_session_auth_hash()
        reauthentication.note(request)
        audit_log.note(actors.actor_from_request(request), "confirm password")
        return HttpResponseRedirect(_place(request))
    if not request.user.is_authenticated:
        return redirect("login")
    minutes = reauthentication.RECENT_SECONDS // 60
    context = {"form": form, "next": _place(request), "minutes": minutes}
    return render(request, "accounts/login/password-again.html", context, status=422 if form.is_bound else 200)


def _checked(request: HttpRequest, form: ConfirmPasswordForm | OwnPasswordForm) -> bool:
    """Returns True if the form is valid. Ends a session with too many wrong passwords: it may be stolen.

    Raises TooManyFailures.
    """
    bucket = LoginFailureBucket(LoginFailureKind.SESSION, request.session.session_key or "")
    login_limits.check([bucket])
    if form.is_valid():
        login_limits.forget([bucket])
        return True
    if form.is_bound and form.has_error("old_password", "password_incorrect"):
        actor = actors.actor_from_request(request)
        failed_logins.add(actor.address, actor.name, "password", ())
        if login_limits.count([bucket]):
            audit_log.note(actor, "end session", "Too many wrong passwords in it.")
            log_out(request)
    return False


def _place(request: HttpRequest) -> str:
    """Returns the URL to continue at; only URLs of this site are accepted."""
    to = request.POST.get("next") or request.GET.get("next", "")
    is_ours = url_has_allowed_host_and_scheme(to, {request.get_host()}, require_https=request.is_secure())
    return to if is_ours else reverse(settings.LOGIN_REDIRECT_URL)


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Sets the theme cookie for browsers without JavaScript; otherwise a script sets the same cookie."""
    form = ThemeForm(request.POST)
    back = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}):
        back = reverse("overview")
    response = HttpResponseRedirect(back)  # `redirect` would take a word for a URL name
    if form.is_valid():
        age = int(_THEME_AGE.total_seconds())
        response.set_cookie(
            THEME_COOKIE, form.cleaned_data["theme"], max_age=age, samesite="Lax", secure=settings.IS_HTTPS
        )
    return response
