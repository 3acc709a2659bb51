"""The second factor: codes as the standard has them, taken once; recovery codes; on, off, and who may turn it off."""

from __future__ import annotations

import re
import time
from io import StringIO

import pytest
import segno
from django.contrib.auth.hashers import make_password
from django.core.management import CommandError, call_command
from django.test import Client
from pytest_django import Settings

from dashboard.accounts import two_factor
from dashboard.accounts.failed_logins import FailedLogins
from dashboard.accounts.login_limits import MOST, LoginFailureKind
from dashboard.accounts.roles import UserRole
from dashboard.models import LoginSession, RecoveryCode, User
from recovery.reads.audit import queries as book
from tests.support.people import PASSWORD, browser, person

pytestmark = pytest.mark.django_db
QUIET_ZONE = 4  # modules, as the standard asks
SEED = "5eed" * 16


@pytest.fixture(autouse=True)
def _quick(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    monkeypatch.setattr("dashboard.accounts.login_views.failed_logins", FailedLogins())


@pytest.fixture
def anna() -> User:
    return User.objects.create(username="anna", role=UserRole.OPERATOR, password=make_password(PASSWORD))


@pytest.fixture
def codes(anna: User) -> list[str]:
    """The recovery codes of anna, who has turned it on."""
    made = two_factor.turn_on(anna, SEED, 0)
    anna.refresh_from_db()
    return made


def now_step() -> int:
    return int(time.time()) // two_factor.STEP_SECONDS


def code(drift: int = 0) -> str:
    return two_factor.code_at(SEED, now_step() + drift)


def log_in(client: Client) -> str:
    """Where the password leads to."""
    return client.post("/login", {"username": "anna", "password": PASSWORD, "next": "/sessions"}).headers["Location"]


def test_codes_are_those_of_the_standard(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 6238, appendix B, SHA-1; the last six of its eight digits."""
    monkeypatch.setattr(two_factor, "_key", lambda _: b"12345678901234567890")
    known = {59: "287082", 1111111109: "081804", 1234567890: "005924", 2000000000: "279037", 20000000000: "353130"}
    assert {at: two_factor.code_at("", at // 30) for at in known} == known


def test_a_code_counts_a_step_before_and_after(anna: User) -> None:
    at = 1_000_000 * two_factor.STEP_SECONDS
    accepted = [
        drift for drift in range(-4, 5) if two_factor.step_of(SEED, two_factor.code_at(SEED, 1_000_000 + drift), at)
    ]
    assert accepted == [-1, 0, 1]


def test_the_database_alone_makes_no_code(anna: User, codes: list[str], settings: Settings) -> None:
    kept = str([User.objects.values().get(pk=anna.pk), *RecoveryCode.objects.values()])
    assert two_factor.secret_of(SEED) not in kept
    assert not [one for one in codes if one in kept or one.replace("-", "") in kept]
    mine = two_factor.code_at(SEED, 1)
    settings.SECRET_KEY = "another key" * 8
    assert two_factor.code_at(SEED, 1) != mine


def test_it_is_turned_on_with_the_code_of_the_picture(anna: User) -> None:
    client = browser(anna)
    page = client.get("/two-factor").content.decode()
    secret = re.search(r'id="two-factor-key">([A-Z2-7]{32})<', page)
    assert secret
    assert re.search(r'<path d="(M\d+ \d+h1v1h-1z)+" fill="#000"/>', page)
    assert client.get("/two-factor").content.decode().count(secret[1]) == 1, "it is the same until it is on"
    seed = client.session["two_factor_seed"]
    assert two_factor.secret_of(seed) == secret[1]
    for wrong in ("000000", "\u0660\u0661\u0662\u0663\u0664\u0665", "\u00b2"):
        assert client.post("/two-factor", {"code": wrong}).status_code == 422
    done = client.post("/two-factor", {"code": two_factor.code_at(seed, now_step())})
    assert done.status_code == 201
    assert len(re.findall(r"<code>[a-z2-9]{5}-[a-z2-9]{5}</code>", done.content.decode())) == two_factor.CODES
    anna.refresh_from_db()
    assert two_factor.is_on(anna)
    assert "two_factor_seed" not in client.session
    assert book.entries().lines[0].act == "two-factor on"
    assert secret[1] not in client.get("/two-factor").content.decode()


def test_the_password_alone_lets_nobody_in(anna: User, codes: list[str]) -> None:
    client = browser()
    assert log_in(client) == "/login/code?next=%2Fsessions"
    assert client.get("/sessions").status_code == 302
    assert client.get("/login/code").status_code == 200
    assert client.post("/login/code?next=/sessions", {"code": "000000"}).status_code == 422
    assert client.get("/sessions").status_code == 302
    answer = client.post("/login/code?next=/sessions", {"code": f" {code()[:3]} {code()[3:]} "})
    assert answer.headers["Location"] == "/sessions"
    assert client.get("/sessions").status_code == 200
    line = book.entries().lines[0]
    assert (line.act, line.reason) == ("log in", "With a code.")


def test_a_code_is_taken_once(anna: User, codes: list[str]) -> None:
    used = code()
    for expected in (302, 422):
        client = browser()
        log_in(client)
        assert client.post("/login/code", {"code": used}).status_code == expected
    log_in(client)
    assert client.post("/login/code", {"code": two_factor.code_at(SEED, now_step() - 1)}).status_code == 422, (
        "nor an older one"
    )


def test_a_recovery_code_lets_in_once(anna: User, codes: list[str]) -> None:
    for expected in (302, 422):
        client = browser()
        log_in(client)
        assert client.post("/login/code", {"code": codes[0].upper()}).status_code == expected
    assert two_factor.codes_left(anna) == two_factor.CODES - 1
    assert book.entries().lines[0].reason == "With a recovery code."


def test_a_recovery_code_of_somebody_else_lets_nobody_in(anna: User, codes: list[str]) -> None:
    boris = person(UserRole.ADMIN, "boris")
    theirs = two_factor.turn_on(boris, "b" * 64, 0)
    client = browser()
    log_in(client)
    assert client.post("/login/code", {"code": theirs[0]}).status_code == 422


def test_codes_are_not_guessed_for_long(anna: User, codes: list[str]) -> None:
    client = browser()
    log_in(client)
    answers = [
        client.post("/login/code", {"code": "000000"}).status_code for _ in range(MOST[LoginFailureKind.CODE] + 1)
    ]
    assert answers == [422] * MOST[LoginFailureKind.CODE] + [429]
    elsewhere = browser()
    log_in(elsewhere)
    assert elsewhere.post("/login/code", {"code": code()}).status_code == 429


@pytest.mark.parametrize("change", ["password", "active", "late", "off"])
def test_a_right_password_of_before_leads_no_further(
    anna: User, codes: list[str], change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = browser()
    log_in(client)
    if change == "password":
        User.objects.update(password=make_password("another quiet night"))
    elif change == "active":
        User.objects.update(is_active=False)
    elif change == "off":
        two_factor.turn_off(anna)
    else:
        monkeypatch.setattr("dashboard.accounts.login_views.PENDING_SECONDS", -1)
    assert client.post("/login/code", {"code": code()}).headers["Location"] == "/login"


def test_a_one_time_link_asks_for_the_code_too(anna: User, codes: list[str]) -> None:
    admin = browser(person(UserRole.ADMIN, "boris"))
    page = admin.post(f"/users/{anna.pk}/link").content.decode()
    link = re.search(r"(/welcome/[^\"]+)", page)
    assert link
    client = browser()
    answer = client.post(link[1], {"password": "another quiet night"})
    assert answer.headers["Location"].startswith("/login/code?")
    assert client.get("/sessions").status_code == 302
    assert client.post(answer.headers["Location"], {"code": code()}).status_code == 302
    assert client.get("/sessions").status_code == 200


def test_new_recovery_codes_replace_the_old(anna: User, codes: list[str]) -> None:
    client = browser(anna)
    page = client.post("/two-factor/codes").content.decode()
    assert not [one for one in codes if one in page]
    assert two_factor.accept(anna, codes[0]) == ""
    assert book.entries().lines[0].act == "new recovery codes"


def test_one_turns_it_off_again(anna: User, codes: list[str]) -> None:
    assert browser(anna).post("/two-factor/off").status_code == 302
    assert log_in(browser()) == "/sessions"
    assert not RecoveryCode.objects.exists()


def test_an_admin_turns_it_off_for_who_has_lost_everything(anna: User, codes: list[str]) -> None:
    admin = browser(person(UserRole.ADMIN, "boris"))
    assert "2FA off" in admin.get("/users").content.decode()
    assert admin.post(f"/users/{anna.pk}/two-factor-off").status_code == 302
    assert log_in(browser()) == "/sessions"
    line = book.entries().lines[-1]
    acts = {one.act: one for one in book.entries().lines}
    assert line
    assert book.load_entry(acts["two-factor off"].number).body == {"person": "anna"}


def test_the_shell_turns_it_off_for_an_admin_who_has_lost_everything(anna: User, codes: list[str]) -> None:
    browser(anna)
    told = StringIO()
    call_command("two-factor-off", "anna", stdout=told)
    assert "is off" in told.getvalue()
    assert not LoginSession.objects.filter(user=anna).exists()
    assert (book.entries().lines[0].act, book.entries().lines[0].actor_kind) == ("two-factor off", "shell")
    for name in ("anna", "nobody"):
        with pytest.raises(CommandError):
            call_command("two-factor-off", name)


def test_the_qr_code_is_drawn_module_by_module_with_its_quiet_zone() -> None:
    address = "otpauth://totp/Unstall:anna?secret=ABC"
    code = two_factor.qr_code(address)
    drawn = {(int(x), int(y)) for x, y in re.findall(r"M(\d+) (\d+)h1v1h-1z", code.path)}
    matrix = segno.make_qr(address, error="m", boost_error=False).matrix
    assert code.size == len(matrix) + 2 * QUIET_ZONE
    wanted = {(x + QUIET_ZONE, y + QUIET_ZONE) for y, row in enumerate(matrix) for x, dark in enumerate(row) if dark}
    assert drawn == wanted


def test_the_address_names_the_environment_and_the_user() -> None:
    address = two_factor.address_of(User(username="anna b&c"), SEED, "production")
    assert address.startswith("otpauth://totp/Unstall%20production:anna%20b%26c?secret=")
    assert "issuer=Unstall%20production" in address
