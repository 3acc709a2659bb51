"""`manage.py tuning`: without any store it judges files; with one it says what truly runs."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store
from tests.support.tuning import COMPOSE, KUBERNETES, apply
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)
GOOD = """QUEUE_WORKER_LOCK_DURATION=30000
QUEUE_WORKER_LOCK_RENEW_TIME=5000
QUEUE_WORKER_STALLED_INTERVAL=15000
N8N_GRACEFUL_SHUTDOWN_TIMEOUT=45
QUEUE_BULL_REDIS_TIMEOUT_THRESHOLD=60000
"""


@pytest.fixture(autouse=True)
def alone(watch: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is configured."""
    watch(UNSTALL_REDIS_URL="")
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> tuple[str, int]:
    """What it says, and its exit status."""
    out = io.StringIO()
    try:
        call_command("tuning", *arguments, stdout=out)
    except SystemExit as ending:
        return out.getvalue(), int(ending.code or 0)
    except CommandError as error:
        return str(error), error.returncode
    return out.getvalue(), 0


def file(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def test_people_read_findings_a_prediction_and_a_patch() -> None:
    said, status = run(file("k8s.yaml", KUBERNETES))
    assert status == 3
    assert said.startswith("high")
    assert "preStop 0 + shutdown 30 = 30 s, grace period 30 s" in said
    assert "now       a lost job is back after about 90 s, typically 70 s, at worst 120 s; grace period" in said
    assert (
        "proposed  a lost job is back after about 45 s, typically 35 s, at worst 60 s; "
        "15 s between shutdown timeout and SIGKILL" in said
    )
    assert "+      terminationGracePeriodSeconds: 65" in said
    assert "hunter" not in said


def test_of_n8n_2_the_summary_says_that_a_lost_job_is_failed() -> None:
    said, _ = run(file("k8s.yaml", KUBERNETES.replace("1.123.5", "2.41.1")))
    assert "now       a lost job is failed, not run again, after about" in said
    assert "proposed  a lost job is failed, not run again, after about" in said
    assert "back after" not in said


def test_scripts_get_json() -> None:
    said, status = run("--json", file("k8s.yaml", KUBERNETES))
    document = json.loads(said)
    assert status == 3
    assert document["findings"][0]["severity"] == "high"
    (worker,) = document["workers"]
    assert worker["now"]["recovery"]["about"] == 90
    assert worker["proposed"]["recovery"]["about"] == 45
    assert worker["now"]["shutdown"]["races"] is True
    assert worker["proposed"]["timing"]["grace"] == 65
    assert [stage["name"] for stage in worker["now"]["recovery"]["stages"]] == ["lock", "check", "pick-up"]
    assert document["running"] is None


@pytest.mark.parametrize("tool", ["patch -p0", "patch -p1", "git apply"])
def test_the_patch_alone_can_be_piped_into_patch_and_git(tool: str) -> None:
    diff, _ = run("--patch", file("k8s.yaml", KUBERNETES))
    apply(diff, Path.cwd(), tool)
    said, status = run("k8s.yaml")
    assert status == 0
    assert "15 s between shutdown timeout and SIGKILL" in said


def test_what_git_needs_is_said_with_the_patch() -> None:
    hint = "`git apply` needs --unidiff-zero"
    assert hint not in run(file("k8s.yaml", KUBERNETES))[0]
    said, _ = run(file("secret.env", "QUEUE_WORKER_LOCK_DURATION=60000\nDB_POSTGRESDB_PASSWORD=hunter2\n"))
    assert f"For secret.env, {hint}" in said
    assert "hunter2" not in said


def test_nothing_grave_is_no_fault() -> None:
    assert run("--n8n-version", "1.123.5", file("good.env", GOOD)) == run("--n8n-version", "1.123.5", "good.env")
    said, status = run("--n8n-version", "1.123.5", "good.env")
    assert status == 0
    assert said.startswith("Nothing is wrong.")


def test_several_files_are_one_order() -> None:
    said, status = run(file("compose.yaml", COMPOSE), file(".env", "N8N_GRACEFUL_SHUTDOWN_TIMEOUT=30\n"))
    assert status == 3
    assert "QUEUE_WORKER_TIMEOUT overrides N8N_GRACEFUL_SHUTDOWN_TIMEOUT: n8n waits 60 s." in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Give files"),
        (("gone.yaml",), "gone.yaml: No such file"),
        (("bad.yaml",), "bad.yaml, line 2: this is not YAML"),
        (("binary",), "binary, line 1: this is not UTF-8 text"),
        (("large",), "too large"),
        (("--n8n-version", "new", "good.env"), "Write --n8n-version"),
        (("--library", "bullmq", "--lock", "long"), "Write --lock"),
    ],
)
def test_a_wrong_call_is_told_from_a_finding(arguments: tuple[str, ...], said: str) -> None:
    file("bad.yaml", "a: 1\nb: }\n")
    file("binary", b"\x80\x81")
    file("large", b"#" * 2_000_000)
    file("good.env", GOOD)
    told, status = run(*arguments)
    assert status == 2
    assert said in told


def test_a_library_is_judged_by_its_flags() -> None:
    said, status = run("--library", "bullmq", "--lock", "1m", "--stalled", "30s", "--shutdown", "10s")
    assert status == 0
    assert "lock 60 + check 30 = 90 s" in said
    assert "in its code: lockDuration: 30000, lockRenewTime: 5000, stalledInterval: 15000" in said


def test_running_without_a_store_is_a_wrong_call() -> None:
    said, status = run("--running")
    assert status == 2
    assert "No deployment is configured" in said


@pytest.mark.node
def test_running_says_what_real_workers_show(watch: Callable[..., None], valkey: Store, fleet: Fleet) -> None:
    library = fleet["bull4"]
    queue = library.queue(valkey, "jobs")
    queue.add("job", {})
    worker = queue.work("hang", lockDuration=40_000, lockRenewTime=4_000, stalledInterval=20_000)
    try:
        until(lambda: valkey.client.pttl("bull:jobs:1:lock") > 0, what="the job is locked")
        watch(UNSTALL_REDIS_URL=valkey.url)
        said, status = run("--running", "--json", file("worker.env", GOOD))
        (seen,) = json.loads(said)["running"]
        assert (seen["base"], seen["lock"], seen["is_unwatched"]) == ("bull:jobs", 40, False)
        assert 0 < seen["interval"] <= 20
        assert "not-in-force" in [finding["kind"] for finding in json.loads(said)["findings"]]
        assert status == 0
    finally:
        worker.close(force=True)


def test_running_finds_a_store_that_throws_locks_away(watch: Callable[..., None], valkey: Store) -> None:
    valkey.client.config_set("maxmemory-policy", "allkeys-lru")
    try:
        watch(UNSTALL_REDIS_URL=valkey.url)
        said, status = run("--running")
    finally:
        valkey.client.config_set("maxmemory-policy", "noeviction")
    assert status == 3
    assert "maxmemory-policy is allkeys-lru" in said
