"""Heads of the audit leave by themselves, each place within its time, and kept ones are compared with the database."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from recovery.actions.audit import audit_log
from recovery.actions.audit import head_delivery as sending
from recovery.alerts.detectors import AlertDetectors
from recovery.config import load
from recovery.domain.actions.types import Actor
from recovery.domain.alerts.types import AlertKind
from recovery.domain.audit.head_targets import AuditHeadTarget, AuditHeadTargets
from recovery.domain.time_units import DAY, MINUTE
from recovery.errors import ConfigError
from recovery.models import AuditEntry, AuditHead
from recovery.reads.audit import queries as book
from recovery.scanners.audit_heads import AGAIN, AuditHeadSender
from recovery.stores import registry
from recovery.stores.registry import ConnectionRegistry
from tests.support.stores.stores import Store
from tests.support.stuck import tampering
from tests.support.stuck.samples import NOW

pytestmark = pytest.mark.django_db
ADA = Actor("person", "ada", "admin")


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "heads"


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


# -- the file


def test_a_head_is_appended_at_its_interval_and_only_when_it_is_new(kept: Path) -> None:
    sender = AuditHeadSender(AuditHeadTargets(every=10 * MINUTE, file=str(kept)), "production")
    audit_log.note(ADA, "log in")
    assert sender.run(NOW) == 1
    assert sender.run(NOW + MINUTE) == 0
    audit_log.note(ADA, "log in")
    assert sender.run(NOW + 9 * MINUTE) == 0
    assert sender.run(NOW + 10 * MINUTE) == 1
    assert sender.run(NOW + 20 * MINUTE) == 0, "nothing was written since"
    assert sender.run(NOW + 30 * MINUTE + DAY) == 1, "silence is no sign of life"
    head = book.head()
    assert lines(kept)[1] == {"number": 2, "hash": head.hash, "at": NOW + 10 * MINUTE, "environment": "production"}
    assert [line["number"] for line in lines(kept)] == [1, 2, 2]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert sender.troubles == {}


def test_each_head_is_on_the_disk_before_it_counts_as_sent(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        fsync(file)

    monkeypatch.setattr(os, "fsync", noted)
    AuditHeadSender(AuditHeadTargets(file=str(kept))).run(NOW)
    assert synced == [str(kept), str(kept.parent)]


def test_a_link_in_place_of_the_file_is_not_followed(kept: Path, tmp_path: Path) -> None:
    kept.symlink_to(tmp_path / "elsewhere")
    sender = AuditHeadSender(AuditHeadTargets(file=str(kept)))
    assert sender.run(NOW) == 0
    assert not (tmp_path / "elsewhere").exists()


def test_who_does_not_lead_sends_nothing(kept: Path) -> None:
    assert AuditHeadSender(AuditHeadTargets(file=str(kept)), may=lambda: False).run(NOW) == 0
    assert not kept.exists()


def test_a_place_that_takes_none_is_an_alert_until_it_does(kept: Path, tmp_path: Path, state_store: Store) -> None:
    kept.mkdir()
    sender = AuditHeadSender(AuditHeadTargets(file=str(kept)))
    sources = AlertDetectors(
        ConnectionRegistry(load({"UNSTALL_STATE_URL": state_store.url}, directory=tmp_path)), lambda: None, sender
    )

    def findings(now: int) -> list[str] | None:
        look = sources.look(now)
        if AlertKind.AUDIT not in look.known:
            return None
        return [one.words for one in look.findings if one.kind is AlertKind.AUDIT]

    assert findings(NOW) is None, "nothing was tried yet"
    sender.run(NOW)
    (words,) = findings(NOW) or ()
    assert "Is a directory" in words
    kept.rmdir()
    assert sender.run(NOW + AGAIN - 1) == 0
    assert sender.run(NOW + AGAIN) == 1
    assert findings(NOW + AGAIN) == []


# -- syslog and webhook


@pytest.fixture
def listening() -> Iterator[Callable[[int], tuple[str, list[bytes]]]]:
    """A listener on loopback of this kind of socket: its address, and what it hears."""
    opened: list[socket.socket] = []

    def listen(kind: int) -> tuple[str, list[bytes]]:
        heard: list[bytes] = []
        server = socket.socket(socket.AF_INET, kind)
        opened.append(server)
        server.bind(("127.0.0.1", 0))
        if kind == socket.SOCK_STREAM:
            server.listen()
        threading.Thread(target=_hear, args=(server, heard), daemon=True).start()
        return f"127.0.0.1:{server.getsockname()[1]}", heard

    yield listen
    for one in opened:
        one.close()


def _hear(server: socket.socket, heard: list[bytes]) -> None:
    try:
        if server.type == socket.SOCK_DGRAM:
            heard.append(server.recv(4096))
            return
        connected, _ = server.accept()
        with closing(connected):
            heard.append(connected.recv(4096))
    except OSError:
        return


@pytest.mark.parametrize(("scheme", "kind"), [("udp", socket.SOCK_DGRAM), ("tcp", socket.SOCK_STREAM)])
def test_syslog_hears_of_it_over_the_network(
    listening: Callable[[int], tuple[str, list[bytes]]], scheme: str, kind: int, kept: Path
) -> None:
    from tests.support.waiting import until

    address, heard = listening(kind)
    audit_log.note(ADA, "log in")
    assert AuditHeadSender(AuditHeadTargets(syslog=f"{scheme}://{address}")).run(NOW) == 1
    until(lambda: heard, 10)
    assert heard[0].startswith(b"<85>1 ")
    kept.write_bytes(heard[0])
    call_command("audit", "compare", str(kept))


def test_syslog_hears_of_it_on_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        assert AuditHeadSender(AuditHeadTargets(syslog=str(path))).run(NOW) == 1
        assert b"unstall-audit[" in server.recv(4096)


def test_a_receiver_that_hangs_holds_nobody_up_for_long(
    monkeypatch: pytest.MonkeyPatch, kept: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr(sending, "SECONDS", 0.3)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        places = load({}, directory=_configured(tmp_path, url=url, file=str(kept))).audit
        sender = AuditHeadSender(places)
        assert sender.run(NOW) == 1, "the file"
        assert sender.troubles
        assert set(sender.troubles) == {AuditHeadTarget.WEBHOOK}
        assert "not answered within" in sender.troubles[AuditHeadTarget.WEBHOOK][0]


def test_what_is_no_file_takes_none(kept: Path) -> None:
    os.mkfifo(kept)
    reads = os.open(kept, os.O_RDONLY | os.O_NONBLOCK)
    sender = AuditHeadSender(AuditHeadTargets(file=str(kept)))
    assert sender.run(NOW) == 0
    os.close(reads)
    assert sender.troubles == {AuditHeadTarget.FILE: (f"{kept} is not a file.", NOW)}


def test_a_disk_that_hangs_holds_one_thread_and_no_more(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(sending, "SECONDS", 0.3)
    monkeypatch.setattr(os, "fsync", lambda file: goes_on.wait(60))
    sender = AuditHeadSender(AuditHeadTargets(file=str(kept)))
    before = threading.active_count()
    assert [sender.run(NOW + number * AGAIN) for number in range(4)] == [0] * 4
    assert threading.active_count() == before + 1
    assert sender.troubles == {AuditHeadTarget.FILE: ("The previous attempt has not finished.", NOW)}
    goes_on.set()


# -- the configuration and the commands


def _configured(directory: Path, **values: object) -> Path:
    written = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    (directory / "unstall.toml").write_text(f"[audit]\n{written}")
    return directory


@pytest.mark.parametrize(
    ("values", "key"),
    [
        ({"file": "nowhere/heads"}, "audit.file"),
        ({"file": "."}, "audit.file"),
        ({"syslog": "localhost"}, "audit.syslog"),
        ({"syslog": "http://localhost"}, "audit.syslog"),
        ({"url": "ftp://x"}, "audit.url"),
        ({"url": "http://x", "tls_ca": "unstall.toml"}, "audit.tls_ca"),
        ({"head_every": 1}, "audit.head_every"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, values: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load({}, directory=_configured(tmp_path, **values))
    assert [problem.key for problem in refused.value.problems] == [key]


def test_kept_heads_show_what_a_sound_chain_hides(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An earlier state of the database is put back, or all is written anew by who has the key."""
    tampering.chain()
    sender = AuditHeadSender(AuditHeadTargets(every=1, file=str(kept)))
    sender.run(NOW)
    call_command("audit", "compare", str(kept))
    call_command("audit", "verify", "--head", str(kept))
    last = AuditEntry.objects.get(number=tampering.LAST)
    AuditEntry.objects.filter(number=tampering.LAST).delete()
    AuditHead.objects.update(number=tampering.LAST - 1, hash=last.previous)
    assert book.verify().is_sound
    for command in (("compare", str(kept)), ("verify", "--head", str(kept))):
        with pytest.raises(CommandError, match="truncated"):
            call_command("audit", *command)
    audit_log.note(ADA, "log in", "another entry in its place")
    assert book.verify().is_sound
    for command in (("compare", str(kept)), ("verify", "--head", str(kept))):
        with pytest.raises(CommandError, match=f"#{tampering.LAST} altered"):
            call_command("audit", *command)


def test_heads_are_read_out_of_a_log(kept: Path) -> None:
    audit_log.note(ADA, "log in")
    head = book.head()
    other = f'{{"number": 1, "hash": "{"0" * 64}"}}'
    kept.write_text(f"Nov 19 host unstall-audit[7]: {head.written()}\nsomething else\n\n")
    assert book.compare(book.kept_heads(kept.read_text().splitlines())).is_sound
    assert not book.compare(book.kept_heads([head.written(), other])).is_sound, "two heads of one number"
    for text in ("", "nothing of it", '{"number": "x", "hash": 1}'):
        with pytest.raises(book.NotAHead):
            book.kept_heads(text.splitlines())


def test_the_shell_sends_one_to_try_it(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNSTALL_CONFIG", str(_configured(tmp_path, file=str(kept)) / "unstall.toml"))
    registry.reset()
    audit_log.note(ADA, "log in")
    call_command("audit", "head", "--send")
    assert lines(kept)[0]["hash"] == book.head().hash
    monkeypatch.setenv("UNSTALL_CONFIG", str(_configured(tmp_path, syslog="/nowhere") / "unstall.toml"))
    registry.reset()
    with pytest.raises(CommandError, match="syslog /nowhere"):
        call_command("audit", "head", "--send")
    registry.reset()
