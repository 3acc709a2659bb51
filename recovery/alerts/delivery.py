"""Delivers to an alert channel of any kind: one attempt, within five seconds."""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr

from recovery.domain.alerts import messages
from recovery.domain.alerts.channels import Channel, Mail, MailEncryption, Webhook
from recovery.domain.alerts.messages import AlertMessage
from recovery.domain.identifiers import printable
from recovery.domain.redaction import redact
from recovery.errors import NotDelivered
from recovery.stores.http import webhooks
from recovery.stores.redis.redis_errors import from_system
from recovery.stores.send_deadline import CancellableSockets, run_within

# -- smtp
# Sends a message as mail, by one SMTP server.


_SAID = 200  # characters of what the server says
_SUBJECT = 180  # characters


class _Line(smtplib.SMTP):
    """SMTP connection that is in the lifeline from the first byte on; smtplib starts with TLS only without it."""

    def __init__(self, mail: Mail, seconds: float, lifeline: CancellableSockets) -> None:
        self._mail = mail
        self._lifeline = lifeline
        # smtplib's default asks a name server for our name, which may take longer than all the rest.
        super().__init__(mail.host, mail.port, local_hostname=socket.gethostname() or "localhost", timeout=seconds)

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        connected = socket.create_connection((host, port), timeout)
        self._lifeline.hold(connected)
        if self._mail.encryption is MailEncryption.TLS:
            return _trusted(self._mail.ca).wrap_socket(connected, server_hostname=host)
        return connected


def reach(mail: Mail, seconds: float, lifeline: CancellableSockets) -> str:
    """Connects and logs in without sending a mail. Raises NotDelivered."""
    with _translated(mail), closing(_Line(mail, seconds, lifeline)) as line:
        _enter(line, mail)
    return ""


def send(mail: Mail, told: AlertMessage, seconds: float, lifeline: CancellableSockets) -> str:
    """Sends a mail; returns what went wrong on the way though it was taken, else "". Raises NotDelivered."""
    letter = _letter(mail, told)
    with _translated(mail), closing(_Line(mail, seconds, lifeline)) as line:
        _enter(line, mail)
        with _translated(mail, may_have=True):  # until the server confirms, it is not known
            refused = line.send_message(letter)
        with suppress(smtplib.SMTPException, OSError):  # it has the mail, however the connection ends
            line.quit()
    return f"It refuses mail for {', '.join(sorted(refused))}." if refused else ""


@contextmanager
def _translated(mail: Mail, *, may_have: bool = False) -> Iterator[None]:
    """Turns errors into NotDelivered. An answer of the server is sure: then it has taken nothing."""
    try:
        yield
    except smtplib.SMTPResponseException as error:
        raise NotDelivered(f"It answers {error.smtp_code}: {_plain(error.smtp_error)}") from error
    except smtplib.SMTPRecipientsRefused as error:
        raise NotDelivered("It refuses mail for all recipients.") from error
    except smtplib.SMTPNotSupportedError as error:
        raise NotDelivered(f"It does not support the configured options: {_plain(str(error))}") from error
    except smtplib.SMTPException as error:
        raise NotDelivered("It closed the connection, or does not speak SMTP.", may_have=may_have) from error
    except (OSError, ValueError) as error:
        raise NotDelivered(_words(error, mail), may_have=may_have) from error


def _enter(line: smtplib.SMTP, mail: Mail) -> None:
    if mail.encryption is MailEncryption.STARTTLS:
        line.starttls(context=_trusted(mail.ca))
    if mail.username:
        line.login(mail.username, mail.password)


def _trusted(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=ca or None)


def _letter(mail: Mail, told: AlertMessage) -> EmailMessage:
    letter = EmailMessage()
    letter["From"] = mail.sender
    letter["To"] = ", ".join(mail.to)
    letter["Subject"] = told.title if len(told.title) <= _SUBJECT else f"{told.title[: _SUBJECT - 1]}…"
    letter["Date"] = format_datetime(datetime.fromtimestamp(told.at / 1000, UTC))
    letter["Message-ID"] = f"<{told.id}@{parseaddr(mail.sender)[1].rpartition('@')[2]}>"
    letter["Auto-Submitted"] = "auto-generated"  # no out-of-office replies
    letter.set_content(messages.text(told))
    return letter


def _words(error: Exception, mail: Mail) -> str:
    if isinstance(error, OSError):
        return f"{from_system(error, mail.server).reason.capitalize()}."
    return f"It cannot be sent ({type(error).__name__})."


def _plain(said: bytes | str) -> str:
    """Cleans a text of the mail server, which is not trusted."""
    words = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return printable(redact.text(" ".join(words.split())))[:_SAID]


# -- delivery


SECONDS = 5.0  # a slower channel would delay the messages of the others


def check_channel(channel: Channel) -> str:
    """Checks that a message could be sent, without one. Returns what could not be tried, or "". Raises NotDelivered."""

    def attempt(lifeline: CancellableSockets) -> str:
        if isinstance(channel, Webhook):
            return webhooks.reach(channel, SECONDS, lifeline)
        return reach(channel, SECONDS, lifeline)

    return run_within(SECONDS, attempt)


def deliver(channel: Channel, told: AlertMessage, within_seconds: float | None = None) -> str:
    """Sends a message; returns what went wrong on the way though it was taken, else "". Raises NotDelivered."""
    seconds = within_seconds or SECONDS

    def attempt(lifeline: CancellableSockets) -> str:
        if isinstance(channel, Webhook):
            return webhooks.post(channel, told, seconds, lifeline)
        return send(channel, told, seconds, lifeline)

    return run_within(seconds, attempt)
