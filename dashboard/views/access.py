"""Coming in, going out, and what a person sets for themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login as log_in
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, LogoutView
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from dashboard import actors, invitations
from dashboard.access import Role
from dashboard.context import THEME_COOKIE
from dashboard.forms import LoginForm, OwnPasswordForm, ThemeForm, WelcomeForm
from dashboard.models import User
from dashboard.views.errors import Fault, answer
from recovery.actions import audit

_BACKEND = "django.contrib.auth.backends.ModelBackend"
_THEME_AGE = timedelta(days=365)


class Login(LoginView):
    template_name = "access/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        nobody = not User.objects.filter(role=Role.ADMIN, is_active=True).exists()
        return super().get_context_data(**kwargs, nobody=nobody)

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        """Both or neither: nobody comes in whom the audit does not know of."""
        with transaction.atomic():
            response = super().form_valid(form)
            audit.note(actors.person(self.request), "sign in")
        return response


login = Login.as_view()
logout = LogoutView.as_view()


def locked_out(request: HttpRequest, credentials: object, *args: object, **kwargs: object) -> HttpResponse:
    """The page after too many wrong passwords; the right one is refused as well until the pause is over."""
    minutes = int(settings.AXES_COOLOFF_TIME.total_seconds() // 60)
    text = f"Too many wrong passwords for this name from your address. Try again in {minutes} minutes."
    advice = "Forgotten? An admin can make you a one-time link under Users."
    response = answer(request, Fault(429, "A pause for this name", text, advice=advice))
    response["Retry-After"] = str(minutes * 60)
    return response


@login_not_required
@sensitive_post_parameters("password")
@require_http_methods(["GET", "POST"])
def welcome(request: HttpRequest, token: str) -> HttpResponse:
    """The other end of a one-time link. Looking at it does not burn it: mail programs look at links."""
    try:
        link = invitations.find(token)
        form = WelcomeForm(request.POST or None, user=link.user)
        if not form.is_valid():
            status = 422 if form.is_bound else 200
            return render(request, "access/welcome.html", {"form": form, "person": link.user}, status=status)
        user = invitations.accept(token, **form.cleaned_data)
    except invitations.LinkSpent:
        return render(request, "access/spent.html", status=404)
    log_in(request, user, backend=_BACKEND)
    audit.note(actors.person(request), "sign in", "By a one-time link.")
    return redirect(settings.LOGIN_REDIRECT_URL)


@sensitive_post_parameters()
@require_http_methods(["GET", "POST"])
def password(request: HttpRequest) -> HttpResponse:
    """One's own password. Every other session of this person ends with it."""
    form = OwnPasswordForm(request.user, request.POST or None)
    if form.is_valid():
        update_session_auth_hash(request, form.save())
        audit.note(actors.person(request), "own password")
        messages.success(request, "Your password is changed. Other browsers are logged out.")
        return redirect("password")
    return render(request, "access/password.html", {"form": form}, status=422 if form.is_bound else 200)


@require_POST
def theme(request: HttpRequest) -> HttpResponse:
    """Without JavaScript; with it the same cookie is written in place."""
    form = ThemeForm(request.POST)
    back = request.headers.get("Referer", "")
    if not url_has_allowed_host_and_scheme(back, {request.get_host()}):
        back = reverse("overview")
    response = HttpResponseRedirect(back)  # `redirect` would take a word for the name of a page
    if form.is_valid():
        age = int(_THEME_AGE.total_seconds())
        response.set_cookie(
            THEME_COOKIE, form.cleaned_data["theme"], max_age=age, samesite="Lax", secure=settings.IS_HTTPS
        )
    return response
