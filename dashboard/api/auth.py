"""Identifies the caller of the API: the token, its scopes, and the actor that the engine knows it as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest
from ninja.security.http import HttpAuthBase

from dashboard.accounts.token_scopes import TokenScope, format_scopes
from dashboard.api.error_responses import ApiError
from dashboard.models import MachineToken
from recovery.domain.actions.types import Actor


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Valid token, and the address that the call came from."""

    token: MachineToken
    address: str

    def enter(self, request: HttpRequest) -> None:
        request.caller = self  # type: ignore[attr-defined]  # the request carries it to the view

    @classmethod
    def of(cls, request: HttpRequest) -> ApiCaller:
        return request.caller  # type: ignore[attr-defined,no-any-return]  # put there by the token check of every API view

    @property
    def actor(self) -> Actor:
        allowed = self.token.allowed
        return Actor(
            kind="token",
            name=self.token.name,
            role="bulk" if TokenScope.BULK in allowed else "act",
            address=self.address,
            may_act=TokenScope.ACT in allowed,
            may_bulk=TokenScope.BULK in allowed,
        )


class ScopeAuth(HttpAuthBase):
    """Authorizes a call whose token has the scope."""

    openapi_scheme = "bearer"

    def __init__(self, scope: TokenScope) -> None:
        super().__init__()
        self.scope = scope

    def __call__(self, request: HttpRequest) -> ApiCaller:
        return self.require(request, self.scope)

    @staticmethod
    def require(request: HttpRequest, scope: TokenScope) -> ApiCaller:
        """Returns the caller if its token has this scope. Raises Refusal."""
        caller = ApiCaller.of(request)
        if scope not in caller.token.allowed:
            has = format_scopes(caller.token.allowed) or "none"
            message = f"This requires a token with the scope {scope}."
            raise ApiError(403, "scope_missing", message, f"The scopes of this token: {has}.")
        return caller


def requires_scope(scope: TokenScope) -> dict[str, Any]:
    """Returns arguments for an operation's decorator: the scope that it requires, also for its description."""
    return {"auth": ScopeAuth(scope), "openapi_extra": {"x-scope": scope.value}}
