"""manage.py doctor: what is well, what is wrong, and the exit status that scripts go by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from recovery import config
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.servers import monitor_acl
from recovery.stores.state import state_keys
from tests.integration.stores.test_acl import admit, documented
from tests.support.doctor import Doctor, doctor_in, says
from tests.support.odd_pages import OK, OddPages
from tests.support.processes.measuring import NodeExporter, patient
from tests.support.stores.stores import Store
from tests.support.stuck.watching import bullmq

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: Any) -> Iterator[Doctor]:
    settings.DATA_DIR = tmp_path / "home"
    with doctor_in(monkeypatch) as run:
        yield run


def test_a_sound_setup_is_well(doctor: Doctor, store: Store, state_store: Store) -> None:
    bullmq(store.client, "bull:mail")
    store.client.rpush("bull:mail:wait", "1")
    status, report = doctor(UNSTALL_REDIS_URL=store.url, UNSTALL_STATE_URL=state_store.url)
    assert (status, report["ok"]) == (0, True), report
    assert not says(report, "", "warning")
    found = says(report, "deployment main", "ok")
    assert "1 queue found" in found
    assert store.kind in found.lower()
    assert "All commands needed for reading are allowed" in found


def test_watching_writes_nothing(doctor: Doctor, valkey: Store, state_store: Store) -> None:
    doctor(UNSTALL_REDIS_URL=valkey.url, UNSTALL_STATE_URL=state_store.url)
    assert (valkey.client.dbsize(), state_store.client.dbsize()) == (0, 0)


def test_who_leads_is_told(doctor: Doctor, valkey: Store, state_store: Store) -> None:
    def told(level: str, sign: SchedulerStatus | None) -> str:
        state_store.client.delete(state_keys.SCHEDULER)
        if sign:
            state_store.client.set(state_keys.SCHEDULER, sign.encode())
        _, report = doctor(UNSTALL_REDIS_URL=valkey.url, UNSTALL_STATE_URL=state_store.url)
        return says(report, "scheduler", level)

    leader = SchedulerStatus("eu-3", 41, 12, 1_760_000_000_000, 1_760_000_001_000, "x")
    assert told("warning", None) == ""
    assert "Process 41 on eu-3 is the leader since 2025-10-09 08:53:20+00:00, epoch 12." in told("ok", leader)
    assert "only reads" in told("warning", replace(leader, epoch=None))
    state_store.client.set(state_keys.SNAPSHOT, b"x")
    assert "None is running" in told("warning", None)


def test_a_dead_deployment_is_wrong_and_the_other_is_checked_too(
    doctor: Doctor, valkey: Store, state_store: Store, tmp_path: Path
) -> None:
    toml = tmp_path / "unstall.toml"
    toml.write_text(
        "[[deployments]]\nname = 'dead'\nurl = 'redis://127.0.0.1:1'\n"
        f"[[deployments]]\nname = 'alive'\nurl = '{valkey.url}'\n"
    )
    status, report = doctor(UNSTALL_CONFIG=str(toml), UNSTALL_STATE_URL=state_store.url)
    assert status == 1
    assert "connection refused" in says(report, "deployment dead", "wrong")
    assert "answers in" in says(report, "deployment alive", "ok")


def test_a_wrong_configuration_is_told_with_its_remedies(doctor: Doctor) -> None:
    status, report = doctor(UNSTALL_REDIS_URL="http://h", UNSTALL_STATE_URL="redis://h/x")
    assert status == 1
    told = says(report, "configuration", "wrong")
    assert "UNSTALL_REDIS_URL" in told
    assert "UNSTALL_STATE_URL" in told
    assert "Write redis://" in told


def test_nothing_configured_is_a_warning(doctor: Doctor) -> None:
    status, report = doctor()
    assert status == 0
    assert "None is configured" in says(report, "deployments", "warning")
    assert "None is configured" in says(report, "state store", "warning")


def test_an_eviction_policy_that_loses_jobs_is_a_warning(doctor: Doctor, serve: Callable[..., Store]) -> None:
    store = serve(options={"maxmemory-policy": "allkeys-lru"})
    _, report = doctor(UNSTALL_REDIS_URL=store.url)
    assert "CONFIG SET maxmemory-policy noeviction" in says(report, "deployment main", "warning")


def test_a_replica_is_a_warning(doctor: Doctor, serve: Callable[..., Store]) -> None:
    store = serve()
    store.client.replicaof("127.0.0.1", 1)
    _, report = doctor(UNSTALL_REDIS_URL=store.url)
    assert "Point the URL at the master" in says(report, "deployment main", "warning")


def test_an_empty_store_is_a_warning(doctor: Doctor, valkey: Store) -> None:
    _, report = doctor(UNSTALL_REDIS_URL=valkey.url)
    assert "No queue was found" in says(report, "deployment main", "warning")


def test_a_configured_queue_that_is_not_there_is_named(doctor: Doctor, valkey: Store, tmp_path: Path) -> None:
    bullmq(valkey.client, "bull:mail")
    toml = tmp_path / "unstall.toml"
    toml.write_text(f"[[deployments]]\nname = 'main'\nurl = '{valkey.url}'\nqueues = ['mail', 'mial']\n")
    _, report = doctor(UNSTALL_CONFIG=str(toml))
    assert "configured queue bull:mial" in says(report, "deployment main", "warning")
    assert "bull:mail" not in says(report, "deployment main", "warning")


def test_every_missing_right_is_named(doctor: Doctor, serve: Callable[..., Store]) -> None:
    store = serve()
    store.do("ACL", "SETUSER", "small", "on", ">pw", "~*", "-@all", "+@read", "-lpos", "-zscore", "-scan", "+ping")
    status, report = doctor(UNSTALL_REDIS_URL=store.url.replace("//", "//small:pw@"))
    assert status == 1
    assert "LPOS, ZSCORE" in says(report, "deployment main", "wrong")
    lesser = says(report, "deployment main", "warning")
    assert "CLIENT LIST is refused" in lesser
    assert "INFO is refused" in lesser
    assert "SCAN is refused" in lesser


def test_the_documented_user_lacks_nothing(doctor: Doctor, serve: Callable[..., Store], state_store: Store) -> None:
    store = serve()
    document = (Path(__file__).parents[3] / "docs" / "redis-acl.md").read_text()
    rule = next(line for line in document.splitlines() if line.startswith("user unstall"))
    store.do("ACL", "SETUSER", *rule.split()[1:])
    bullmq(store.client, "bull:mail")
    store.client.rpush("bull:mail:wait", "1")
    url = store.url.replace("//", "//unstall:choose-a-password@")
    status, report = doctor(UNSTALL_REDIS_URL=url, UNSTALL_STATE_URL=state_store.url, UNSTALL_READ_ONLY="1")
    assert status == 0
    assert not says(report, "", "warning")


def test_a_state_store_beside_the_queues_is_found_under_another_name(doctor: Doctor, valkey: Store) -> None:
    status, report = doctor(UNSTALL_REDIS_URL=valkey.url, UNSTALL_STATE_URL=valkey.url.replace("127.0.0.1", "127.1"))
    assert status == 1
    assert "the same database as the queues of main" in says(report, "state store", "wrong")


def test_a_shared_server_is_a_warning(doctor: Doctor, valkey: Store) -> None:
    status, report = doctor(UNSTALL_REDIS_URL=valkey.url, UNSTALL_STATE_URL=valkey.url.replace("/0", "/1"))
    assert status == 0
    assert "shares its server" in says(report, "state store", "warning")


def test_a_state_store_that_takes_no_writes_is_wrong(doctor: Doctor, serve: Callable[..., Store]) -> None:
    store = serve()
    store.client.replicaof("127.0.0.1", 1)
    status, report = doctor(UNSTALL_STATE_URL=store.url)
    assert status == 1
    assert "replica" in says(report, "state store", "wrong")


def test_a_state_store_that_lets_everybody_in_is_a_warning(doctor: Doctor, serve: Callable[..., Store]) -> None:
    store = serve()
    _, report = doctor(UNSTALL_STATE_URL=store.url)
    assert "no password" not in says(report, "state store", "warning"), "only this machine reaches it"
    _, report = doctor(UNSTALL_STATE_URL=store.url.replace("127.0.0.1", "127.1"))
    assert "requirepass" in says(report, "state store", "warning")


def test_a_monitor_s_user_that_may_write_the_keys_of_all_servers_is_a_warning(
    doctor: Doctor, serve: Callable[..., Store]
) -> None:
    store = serve()
    store.do(*monitor_acl.rule("eu-1").split())
    store.do("ACL", "SETUSER", "reads-them", "on", ">x", "%R~worker-monitor:*", "+@read")
    store.do("ACL", "SETUSER", "gone", "off", ">x", "~worker-monitor:*", "+@all")
    _, report = doctor(UNSTALL_STATE_URL=store.url)
    assert not says(report, "state store", "warning")
    store.do("ACL", "SETUSER", "wide", "on", ">x", "~worker-monitor:*", "+hset")
    _, report = doctor(UNSTALL_STATE_URL=store.url)
    assert "user wide may write the keys of every server" in says(report, "state store", "warning")


def test_a_data_directory_that_cannot_be_written_is_wrong(doctor: Doctor, settings: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings.DATA_DIR = tmp_path / "file" / "below"
    status, report = doctor()
    assert status == 1
    assert "UNSTALL_DATA_DIR" in says(report, "data directory", "wrong")


def test_a_data_directory_open_to_all_is_a_warning(doctor: Doctor, settings: Any) -> None:
    Path(settings.DATA_DIR).mkdir(mode=0o755)
    Path(settings.DATA_DIR).chmod(0o755)
    _, report = doctor()
    assert f"chmod o= {settings.DATA_DIR}" in says(report, "files", "warning")


def test_files_of_data_and_of_secrets_that_all_may_read_are_a_warning(
    doctor: Doctor, settings: Any, tmp_path: Path
) -> None:
    data, secret = Path(settings.DATA_DIR) / "unstall.sqlite3", tmp_path / "redis url"
    data.parent.mkdir(mode=0o700)
    data.touch(0o600)
    secret.write_text("redis://127.0.0.1:1")
    secret.chmod(0o600)
    assert not says(doctor(UNSTALL_REDIS_URL_FILE=str(secret))[1], "files", "warning")
    for file in (data, secret):
        file.chmod(0o604)
    assert f"{data} and 1 more. chmod o= {data} '{secret}'" in says(doctor()[1], "files", "warning")


def test_what_another_program_answers_does_not_speak_to_the_terminal(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    answer = b'HTTP/1.1 500 No\r\n\r\n{"error": "\\u001b[2Jgone\\u009b31m"}'
    with OddPages() as pages:
        url = pages.page(answer).removesuffix("/metrics")
        (tmp_path / "unstall.toml").write_text(f'[prometheus]\nurl = "{url}"\n')
        monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
        config.current.cache_clear()
        out = StringIO()
        with pytest.raises(SystemExit):
            call_command("doctor", stdout=out)
    assert "␛[2Jgone" in out.getvalue()
    assert not {"\x1b", "\u009b"} & set(out.getvalue())


def test_people_get_sentences(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSTALL_REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
    config.current.cache_clear()
    out = StringIO()
    with pytest.raises(SystemExit):
        call_command("doctor", stdout=out)
    assert "deployment main\n  wrong    redis://127.0.0.1:1/0: connection refused." in out.getvalue()
    assert "→ Is it running" in out.getvalue()
    assert "1 wrong" in out.getvalue()
    assert "hunter2" not in out.getvalue()


def test_who_measures_servers_is_tried(
    doctor: Doctor, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patient(monkeypatch)
    toml = tmp_path / "unstall.toml"
    with NodeExporter() as exporter, OddPages() as pages:
        toml.write_text(
            "[prometheus]\nurl = 'http://127.0.0.1:1'\n"
            f"[[nodes]]\nid = 'eu-1'\nexporter = '{exporter.page}'\ndisk = '/nowhere'\n"
            f"[[nodes]]\nid = 'eu-2'\nexporter = '{pages.page(OK)}'\n"
        )
        status, report = doctor(UNSTALL_CONFIG=str(toml), UNSTALL_STATE_URL=state_store.url)
    assert status == 1
    assert "cores of" in says(report, "node eu-1", "ok")
    assert "no disk at /nowhere" in says(report, "node eu-1", "warning")
    assert "is this the address of a node_exporter" in says(report, "node eu-2", "wrong").lower()
    assert "connection refused" in says(report, "prometheus", "wrong")


def test_a_user_who_may_only_read_is_told_so(doctor: Doctor, serve: Callable[..., Store], state_store: Store) -> None:
    store = serve()
    bullmq(store.client, "bull:mail")
    url = admit(store, documented())
    status, report = doctor(UNSTALL_REDIS_URL=url, UNSTALL_STATE_URL=state_store.url)
    assert status == 0
    said = says(report, "deployment main", "warning")
    assert "Its user has no write permission" in said
    assert "UNSTALL_READ_ONLY=1" in said
    log: Any = store.client.acl_log()
    assert [entry["object"] for entry in log] == ["evalsha"]
    store.client.acl_log_reset()
    _, report = doctor(UNSTALL_REDIS_URL=url, UNSTALL_STATE_URL=state_store.url, UNSTALL_READ_ONLY="1")
    assert "configured to be read only" in says(report, "deployment main", "ok")
    assert not says(report, "deployment main", "warning")
    assert store.client.acl_log() == []
