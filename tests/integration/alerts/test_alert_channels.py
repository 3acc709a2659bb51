"""One message to one receiver: a real web server and a real mail server, as they answer, fail, and fall silent."""

from __future__ import annotations

import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.alerts import delivery
from recovery.config import Config
from recovery.domain.alerts import messages
from recovery.domain.alerts.channels import Alerting, Channel, Mail, MailEncryption, Webhook, WebhookFormat
from recovery.domain.alerts.messages import AlertItem
from recovery.domain.alerts.types import AlertEvent, AlertKind, AlertRecord
from recovery.errors import NotDelivered
from recovery.management.doctor.alerts import alerts
from recovery.management.doctor.findings import DoctorLevel
from tests.support.processes.processes import free_port
from tests.support.receivers import DRIP, HANG, RESET, Hooked, Posts, hooked, posts
from tests.support.waiting import until

AT = 1_760_000_000_000
NASTY = "<!channel> & <https://evil.example|shop/bull:mail>"
ALERT = AlertRecord(
    AlertKind.ABANDONED, "shop/bull:mail", f"3 jobs are abandoned in {NASTY}.", "/stuck?queue=x", 3, AT - 90_000, AT
)
SECRET = "s3cr3t"


@pytest.fixture
def hook() -> Iterator[Hooked]:
    with hooked() as made:
        yield made


@pytest.fixture
def post() -> Iterator[Posts]:
    with posts() as made:
        yield made


def webhook(hook: Hooked, **chosen: object) -> Webhook:
    return Webhook("ops", hook.url, **chosen)  # type: ignore[arg-type]


def mail(post: Posts, encryption: MailEncryption = MailEncryption.NONE, **chosen: object) -> Mail:
    to = ("ops@example.com", "night@example.com")
    return Mail("127.0.0.1", post.port, encryption, "Unstall <unstall@example.com>", to, **chosen)  # type: ignore[arg-type]


def send(channel: Channel, *items: AlertItem, seconds: float = 20.0) -> str:
    """With more time than anything takes that goes well."""
    told = messages.compose_message(
        items or (AlertItem(AlertEvent.FIRING, ALERT, AT),), channel, AT, environment="prod", site="https://u"
    )
    return delivery.deliver(channel, told, seconds)


def refused(channel: Channel, seconds: float = 20.0) -> NotDelivered:
    with pytest.raises(NotDelivered) as caught:
        send(channel, seconds=seconds)
    assert SECRET not in str(caught.value)
    return caught.value


def test_a_webhook_gets_signed_json_with_a_link(hook: Hooked) -> None:
    assert send(webhook(hook, secret="shared", header="X-Sig")) == ""
    (posted,) = hook.posted
    assert posted.path == "/hooks/T0/s3cr3t"
    assert posted.headers["x-sig"] == f"sha256={hmac.new(b'shared', posted.body, hashlib.sha256).hexdigest()}"
    assert posted.headers["idempotency-key"] == posted.told["id"]
    assert posted.told["title"] == f"[prod] 3 jobs are abandoned in {NASTY}."
    (alert,) = posted.told["alerts"]
    assert (alert["kind"], alert["key"], alert["size"], alert["link"]) == (
        "abandoned",
        "shop/bull:mail",
        3,
        "https://u/stuck?queue=x",
    )


def test_the_address_of_a_webhook_is_in_no_log(hook: Hooked, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        send(webhook(hook))
        hook.answers = [500]
        refused(webhook(hook))
    assert SECRET not in caplog.text


def test_slack_gets_text_that_calls_nobody(hook: Hooked) -> None:
    send(webhook(hook, format=WebhookFormat.SLACK))
    (posted,) = hook.posted
    assert posted.told["text"].startswith("FIRING [prod] 3 jobs are abandoned in &lt;!channel&gt; &amp; &lt;https:")
    assert posted.told["text"].endswith("\n<https://u/stuck?queue=x|Open>")
    assert "x-unstall-signature" not in posted.headers


def test_what_is_no_success_is_none_and_a_redirect_is_not_followed(hook: Hooked) -> None:
    with hooked() as elsewhere:
        hook.answers = [500, 504, (429, {"Retry-After": "120"}), (302, {"Location": elsewhere.url}), 404]
        failed = refused(webhook(hook))
        assert str(failed) == "It answers 500 Internal Server Error: no_service: token=[redacted]"
        assert not failed.may_have, "it says that it has not"
        assert refused(webhook(hook)).may_have, "somebody between says so, who cannot know"
        assert refused(webhook(hook)).retry == 120
        assert "302 Found, and redirects are not followed" in str(refused(webhook(hook)))
        refused(webhook(hook))
        assert elsewhere.posted == []


def test_a_webhook_that_cannot_be_reached_was_surely_not_told(hook: Hooked) -> None:
    failed = refused(Webhook("ops", f"http://127.0.0.1:{free_port()}/{SECRET}"))
    assert (str(failed), failed.may_have) == ("Connection refused.", False)


@pytest.mark.parametrize("silence", [HANG, DRIP])
def test_a_webhook_that_hangs_is_cut_off(hook: Hooked, silence: str) -> None:
    """Also one that always sends a little more, so that no single read is ever late."""
    hook.answers = [silence]
    failed = refused(webhook(hook), seconds=1.0)
    assert failed.may_have
    until(lambda: not _senders(), 30, "the attempt ends although the other side goes on")


def test_a_webhook_that_hangs_up_may_have_been_told(hook: Hooked) -> None:
    hook.answers = [RESET]
    assert refused(webhook(hook)).may_have


def test_a_certificate_has_to_be_trusted(certificates: Path) -> None:
    with hooked(certificates) as hook:
        failed = refused(webhook(hook))
        assert "certificate was rejected" in str(failed)
        assert not failed.may_have
        assert send(webhook(hook, ca=str(certificates / "ca.crt"))) == ""
        assert len(hook.posted) == 1


def test_mail_says_in_its_subject_what_is_wrong(post: Posts) -> None:
    assert send(mail(post)) == ""
    (letter,) = post.letters
    assert (letter.sender, letter.to) == ("unstall@example.com", ["ops@example.com", "night@example.com"])
    assert letter.message["Subject"] == f"[prod] 3 jobs are abandoned in {NASTY}."
    assert letter.message["Auto-Submitted"] == "auto-generated"
    assert "https://u/stuck?queue=x" in letter.text
    assert letter.login == ""


@pytest.mark.parametrize("encryption", [MailEncryption.STARTTLS, MailEncryption.TLS])
def test_the_password_goes_only_over_tls_that_is_trusted(certificates: Path, encryption: MailEncryption) -> None:
    with posts(certificates, implicit=encryption is MailEncryption.TLS) as post:
        login = {"username": "unstall", "password": SECRET}
        assert "certificate was rejected" in str(refused(mail(post, encryption, **login)))
        assert post.letters == []
        assert send(mail(post, encryption, ca=str(certificates / "ca.crt"), **login)) == ""
        (letter,) = post.letters
        assert letter.is_encrypted
        assert letter.login == f"\0unstall\0{SECRET}"


def test_a_server_without_starttls_gets_neither_password_nor_mail(post: Posts) -> None:
    failed = refused(mail(post, MailEncryption.STARTTLS, username="unstall", password=SECRET))
    assert "STARTTLS" in str(failed)
    assert post.letters == []


def test_mail_that_is_refused_was_not_told_and_mail_that_is_not_answered_may_have_been(post: Posts) -> None:
    post.refuse = {"MAIL": "550 token=s3cr3t is blocked"}
    failed = refused(mail(post))
    assert "550" in str(failed)
    assert not failed.may_have
    post.refuse, post.hang_at = {}, "DATA-END"
    assert refused(mail(post), seconds=1.0).may_have
    post.hang_at = "EHLO"
    refused(mail(post), seconds=1.0)
    until(lambda: not _senders(), 30, "no attempt goes on")


def test_a_server_that_parts_rudely_has_taken_the_mail(post: Posts) -> None:
    post.refuse = {"QUIT": "500 what?"}
    assert send(mail(post)) == ""
    assert len(post.letters) == 1


def test_a_digest_tells_the_first_and_counts_the_rest(hook: Hooked) -> None:
    items = [AlertItem(AlertEvent.FIRING, ALERT, AT) for _ in range(150)]
    send(webhook(hook), *items)
    told = hook.posted[0].told
    assert told["title"] == "[prod] 150 alerts: 150 firing"
    assert (len(told["alerts"]), told["left_out"], told["event"]) == (100, 50, "digest")
    send(webhook(hook, format=WebhookFormat.SLACK), *items)
    assert "– and 138 more" in hook.posted[1].told["text"]
    assert len(hook.posted[1].told["text"]) < 2500


def test_the_doctor_tries_everything_but_a_message(
    certificates: Path, post: Posts, hook: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "SECONDS", 30.0)  # more than a busy machine needs
    (found,) = list(alerts(Config(alerting=Alerting(channels=(webhook(hook),)), public_url="https://u")))
    assert (found.level, found.says) == (DoctorLevel.GOOD, f"http://127.0.0.1:{hook.port} can be reached.")
    with hooked(certificates) as secured:
        channels_of = (webhook(secured), mail(post, MailEncryption.STARTTLS), mail(post))
        wrong, also, well, no_link = alerts(Config(alerting=Alerting(channels=channels_of)))
    assert [one.level for one in (wrong, also, well, no_link)] == [
        DoctorLevel.WRONG,
        DoctorLevel.WRONG,
        DoctorLevel.GOOD,
        DoctorLevel.WARNING,
    ]
    assert "certificate was rejected" in wrong.says
    assert "STARTTLS" in also.says
    assert hook.posted == post.letters == []


def test_an_attempt_ends_when_it_is_over_not_when_its_time_is(hook: Hooked) -> None:
    began = time.monotonic()
    send(webhook(hook), seconds=60)
    assert time.monotonic() - began < 50


def _senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "message"]
