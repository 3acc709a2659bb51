"""Defines the forms of log-in, accounts, tokens and theme, which validate all input before anything uses it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth import password_validation
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm, UsernameField
from django.contrib.auth.validators import UnicodeUsernameValidator

from dashboard.accounts import login_limits
from dashboard.accounts.failed_logins import failed_logins
from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.accounts.tokens import DAYS, DAYS_DEFAULT
from dashboard.base.context_processors import THEMES
from dashboard.models import MachineToken, User

_NAME_LIMIT = 150  # as long as Django's column
TAKEN = "This name is already in use."


class LoginForm(AuthenticationForm):
    """Name and password. A failure is counted, logged and summed up for the audit."""

    username = UsernameField(label="Name", widget=forms.TextInput(attrs={"autofocus": True}))
    error_messages = {  # noqa: RUF012 - the base's own shape
        "invalid_login": "Wrong user name or password.",
        "inactive": "Wrong user name or password.",
    }

    def clean(self) -> dict[str, Any]:
        """Checks name and password. Raises TooManyFailures before the password is checked."""
        name, request = self.cleaned_data.get("username"), self.request
        if not name or not self.cleaned_data.get("password") or request is None:
            return super().clean()
        buckets = login_limits.login_buckets(request, name)
        login_limits.check(buckets)
        try:
            return super().clean()
        except forms.ValidationError:
            paused = tuple(bucket.kind for bucket in login_limits.count(buckets))
            failed_logins.add(login_limits.address_of(request), name, "password", paused)
            raise


class CodeForm(forms.Form):
    """The second factor's code."""

    code = forms.CharField(
        label="Code",
        max_length=32,
        help_text="Six digits from your authenticator app, or a recovery code.",
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "autofocus": True, "spellcheck": "false"}),
    )


class ThemeForm(forms.Form):
    theme = forms.ChoiceField(choices=[(theme, theme) for theme in THEMES])


class NameField(UsernameField):
    """Field for a user name."""

    def __init__(self) -> None:
        super().__init__(label="Name", max_length=_NAME_LIMIT, validators=[UnicodeUsernameValidator()])


class PersonForm(forms.Form):
    """New user, who chooses the password through a one-time link."""

    username = NameField()
    role = forms.ChoiceField(label="Role", choices=[(role.value, role.value) for role in UserRole])

    def clean_username(self) -> str:
        return _free(self.cleaned_data["username"])


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=[(role.value, role.value) for role in UserRole])


class ActiveForm(forms.Form):
    active = forms.BooleanField(required=False)


class WelcomeForm(forms.Form):
    """Name and password of a user who came by a one-time link. `user` is None for the first admin."""

    username = NameField()
    password = forms.CharField(
        label="Password",
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text="At least 10 characters. Not a common password and not your name.",
    )

    def __init__(self, *args: Any, user: User | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._user = user
        if user:
            self.fields["username"].disabled = True
            self.initial["username"] = user.username

    def clean_username(self) -> str:
        return self._user.username if self._user else _free(self.cleaned_data["username"])

    def clean(self) -> dict[str, Any]:
        told = super().clean() or {}
        if "username" in told and "password" in told:
            self._judge(told["username"], told["password"])
        return told

    def _judge(self, username: str, password: str) -> None:
        try:
            password_validation.validate_password(password, self._user or User(username=username))
        except forms.ValidationError as error:
            self.add_error("password", error)


class TokenForm(forms.Form):
    """A new machine token."""

    name = forms.RegexField(
        r"^[A-Za-z0-9][\w .@-]*$",
        label="Name",
        max_length=60,
        error_messages={"invalid": "Letters, digits, spaces and . _ - @; a letter or a digit first."},
    )
    scopes = forms.MultipleChoiceField(
        label="Scopes",
        choices=[(scope.value, scope.value) for scope in TokenScope],
        widget=forms.CheckboxSelectMultiple,
        initial=[TokenScope.READ.value],
        error_messages={"required": "Select at least one scope."},
    )
    days = forms.TypedChoiceField(
        label="Expires in",
        choices=[(days, f"{days} days") for days in DAYS],
        coerce=int,
        initial=DAYS_DEFAULT,
    )

    def clean_name(self) -> str:
        """Refuses a name in use, also by a revoked token: the audit knows a token by its name."""
        name: str = self.cleaned_data["name"]
        if MachineToken.objects.filter(name__iexact=name).exists():
            raise forms.ValidationError(TAKEN)
        return name


class ConfirmPasswordForm(forms.Form):
    """Password of a logged-in user, asked for again."""

    old_password = forms.CharField(
        label="Password",
        strip=False,
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
    )

    def __init__(self, user: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._user = user

    def clean_old_password(self) -> str:
        written: str = self.cleaned_data["old_password"]
        if not self._user.check_password(written):
            raise forms.ValidationError("Wrong password.", code="password_incorrect")
        return written


class OwnPasswordForm(PasswordChangeForm):
    """Django's form for changing one's own password, with our labels."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["old_password"].label = "Current password"
        self.fields["new_password1"].label = "New password"
        self.fields["new_password1"].help_text = "At least 10 characters. Not a common password and not your name."
        self.fields["new_password2"].label = "Confirm new password"
        self.fields["new_password2"].help_text = ""


def _free(username: str) -> str:
    """Refuses a name in use in any case: `Anna` and `anna` are one person to everybody but the database."""
    if User.objects.filter(username__iexact=username).exists():
        raise forms.ValidationError(TAKEN)
    return username
