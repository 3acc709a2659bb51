"""[alerts]: what is read of it, and every slip of the pen told with its key and without its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.config import Config, load
from recovery.domain.alerts.channels import Mail, MailEncryption, Webhook, WebhookFormat
from recovery.domain.alerts.types import AlertKind
from recovery.errors import ConfigError

SECRET = "s3cr3t"
HOOK = f'name = "ops"\nurl = "https://hooks.example.com/{SECRET}"\n'
MAIL = 'host = "smtp.example.com"\nfrom = "Unstall <unstall@example.com>"\nto = ["ops@example.com"]\n'


def read(directory: Path, *, alerts: str = "", hook: str = "", mail: str = "", **environ: str) -> Config:
    parts = ["[alerts]", alerts]
    parts += ["[[alerts.webhooks]]", hook] if hook else []
    parts += ["[alerts.email]", mail] if mail else []
    (directory / "unstall.toml").write_text("\n".join(parts))
    return load(environ, directory=directory)


def problems(directory: Path, **parts: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(directory, **parts)
    assert SECRET not in str(raised.value)
    return [problem.key for problem in raised.value.problems]


def test_what_is_left_out_is_as_it_is_by_default(tmp_path: Path) -> None:
    hook, mail = read(tmp_path, hook=HOOK, mail=MAIL).alerting.channels
    assert isinstance(hook, Webhook)
    assert isinstance(mail, Mail)
    assert (hook.format, hook.header, hook.secret, hook.kinds) == (
        WebhookFormat.JSON,
        "X-Unstall-Signature",
        "",
        frozenset(AlertKind),
    )
    assert (mail.port, mail.encryption, mail.kinds) == (587, MailEncryption.STARTTLS, frozenset(AlertKind))
    assert read(tmp_path).alerting.channels == ()


def test_what_is_written_counts_and_secrets_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "url").write_text(f"https://hooks.example.com/{SECRET}\n")
    (tmp_path / "key").write_text(f"{SECRET}\n")
    hook = 'name = "ops"\nurl_file = "url"\nsecret_file = "key"\nformat = "slack"\nheader = "X-Sig"\nkinds = ["gate"]'
    mail = f'{MAIL}username = "u"\npassword_file = "key"\nencryption = "tls"'
    terms = 'kinds = ["gate", "quarantine"]\nafter = 5\ngate_after = 60\ncalm = 7\nagain = 0\nmost = 3'
    alerting = read(tmp_path, alerts=terms, hook=hook, mail=mail).alerting
    one, other = alerting.channels
    assert one == Webhook(
        "ops",
        f"https://hooks.example.com/{SECRET}",
        WebhookFormat.SLACK,
        "X-Sig",
        SECRET,
        kinds=frozenset({AlertKind.GATE}),
    )
    assert isinstance(other, Mail)
    assert (other.password, other.port, other.kinds) == (SECRET, 465, frozenset({AlertKind.GATE, AlertKind.QUARANTINE}))
    told = alerting.terms
    assert (told.after, told.gate_after, told.calm, told.again, told.most) == (5000, 60_000, 7000, None, 3)
    for shown in (repr(alerting), one.target, other.target):
        assert SECRET not in shown
    assert one.target == "https://hooks.example.com"


@pytest.mark.parametrize(
    ("hook", "keys"),
    [
        ("format = 'json'", ["name", "url"]),
        (f'name = "ops"\nurl = "ftp://{SECRET}"', ["url"]),
        (f'name = "ops"\nurl = "https://[{SECRET}"', ["url"]),
        (f'{HOOK}url_file = "nowhere"', ["url_file"]),
        (f'{HOOK}format = "teams"\nheader = "a b"\nkinds = ["all"]', ["header", "format", "kinds"]),
        (f'{HOOK}header = "Content-Length"', ["header"]),
        (f"{HOOK}[[alerts.webhooks]]\n{HOOK}", [""]),
        (HOOK.replace("ops", "email"), [""]),
        (f"{HOOK}retries = 3", ["retries"]),
    ],
)
def test_a_webhook_that_cannot_be_used_says_why(tmp_path: Path, hook: str, keys: list[str]) -> None:
    expected = [f"alerts.webhooks[1].{key}" if key else "alerts.webhooks" for key in keys]
    assert problems(tmp_path, hook=hook) == expected


@pytest.mark.parametrize(
    ("mail", "keys"),
    [
        ('encryption = "starttls"', ["host", "from", "to"]),
        (MAIL.replace("ops@example.com", "ops"), ["to"]),
        (MAIL.replace("ops@example.com", "a@b.c, d@e.f"), ["to"]),
        (f'{MAIL}encryption = "ssl"', ["encryption"]),
        (f'{MAIL}username = "u"', ["password_file"]),
        (f'{MAIL}password = "{SECRET}"', ["username"]),
        (f'{MAIL}username = "u"\npassword = "{SECRET}"\nencryption = "none"', ["encryption"]),
    ],
)
def test_mail_that_cannot_be_sent_says_why(tmp_path: Path, mail: str, keys: list[str]) -> None:
    assert problems(tmp_path, mail=mail) == [f"alerts.email.{key}" for key in keys]


def test_where_links_lead(tmp_path: Path) -> None:
    origins = "https://unstall.example.com/,https://other.example.com"
    assert read(tmp_path, UNSTALL_TRUSTED_ORIGINS=origins).public_url == "https://unstall.example.com"
    named = read(tmp_path, UNSTALL_TRUSTED_ORIGINS=origins, UNSTALL_PUBLIC_URL="https://example.com/unstall/")
    assert named.public_url == "https://example.com/unstall"
    assert read(tmp_path).public_url == ""
    assert problems(tmp_path, UNSTALL_PUBLIC_URL="example.com") == ["UNSTALL_PUBLIC_URL"]
