"""What is said of a setting, how bad it is, and by which arithmetic."""

from __future__ import annotations

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.tuning.findings import Severity
from recovery.domain.tuning.observed import ObservedQueue, ObservedSettings, ObservedStore
from recovery.domain.tuning.report import TuningReport, report
from recovery.domain.tuning.timing import WorkerTiming
from recovery.domain.tuning.worker_setup import TuningOptions
from recovery.domain.tuning.workloads import DeploymentFiles
from recovery.tuning.parsers.deployment_files import parse_files
from tests.support.tuning import COMPOSE, KUBERNETES, finding, judged, kinds, patched

QUEUE = QueueRef("main", "bull:jobs")
PROBE = "          readinessProbe:\n            httpGet: {path: /healthz/readiness, port: 5678}\n"


def of(timing: WorkerTiming) -> set[str]:
    return kinds(judged({}, TuningOptions(timing=timing)))


def n8n(*lines: str, version: str = "1.123.5") -> str:
    head = f"services:\n  worker:\n    image: n8nio/n8n:{version}\n    command: worker\n    environment:\n"
    return head + "".join(f"      {line}\n" for line in lines)


def with_variable(name: str, value: str) -> str:
    """The manifest, with one variable more."""
    head = "          env:\n"
    return KUBERNETES.replace(head, f"{head}            - {{name: {name}, value: '{value}'}}\n")


def test_the_worst_stands_first() -> None:
    ranks = [one.severity.rank for one in judged({"k.yaml": KUBERNETES}).findings]
    assert ranks == sorted(ranks)
    assert ranks[0] == Severity.HIGH.rank


def test_the_race_is_told_with_its_sum() -> None:
    said = finding(judged({"k.yaml": KUBERNETES}), "sigkill-race")
    assert said.severity is Severity.HIGH
    assert said.arithmetic == "preStop 0 + shutdown 30 = 30 s, grace period 30 s"
    assert said.where == "n8n-worker (k.yaml:11)"


def test_dockers_ten_seconds_are_no_time_for_n8n() -> None:
    said = finding(judged({"c.yaml": n8n("A: b")}), "sigkill-race")
    assert "20 s before" in said.says


def test_a_margin_of_a_moment_is_narrow() -> None:
    text = n8n("A: b").replace("    command", "    stop_grace_period: 32s\n    command")
    assert finding(judged({"c.yaml": text}), "narrow-grace").severity is Severity.MEDIUM


@pytest.mark.parametrize(
    ("lock", "renew", "severity"),
    [
        (30, 10, None),
        (30, 15, Severity.LOW),
        (30, 20, Severity.MEDIUM),
        (30, 30, Severity.HIGH),
        (30, 60, Severity.HIGH),
    ],
)
def test_a_renewal_too_near_the_locks_end(lock: float, renew: float, severity: Severity | None) -> None:
    found = judged({}, TuningOptions(timing=WorkerTiming(QueueLibrary.BULLMQ, lock, renew, 15)))
    said = {one.severity for one in found.findings if one.kind == "renewed-too-late"}
    assert said == ({severity} if severity else set())


@pytest.mark.parametrize(
    ("lock", "interval", "severity"),
    [(30, 15, None), (30, 30, Severity.LOW), (60, 30, Severity.MEDIUM), (10, 120, Severity.MEDIUM)],
)
def test_a_recovery_that_is_slow(lock: float, interval: float, severity: Severity | None) -> None:
    found = judged({}, TuningOptions(timing=WorkerTiming(QueueLibrary.BULL, lock, lock / 6, interval)))
    said = {one.severity for one in found.findings if one.kind == "slow-recovery"}
    assert said == ({severity} if severity else set())


def test_what_a_shorter_lock_costs_is_said() -> None:
    said = finding(judged({"k.yaml": KUBERNETES}), "slow-recovery")
    assert said.remedy.endswith("A worker that is blocked for 25 s then loses its jobs; now that takes 50 s.")


def test_a_finding_names_what_is_to_be_set() -> None:
    found = judged({"k.yaml": KUBERNETES})
    lock = "QUEUE_WORKER_LOCK_DURATION = 30000"
    renew, check = "QUEUE_WORKER_LOCK_RENEW_TIME = 5000", "QUEUE_WORKER_STALLED_INTERVAL = 15000"
    assert finding(found, "slow-recovery").remedy.startswith(f"Set {lock}, {renew} and {check}: about 45 s.")
    assert finding(found, "sigkill-race").remedy == "terminationGracePeriodSeconds: 65."
    assert finding(found, "short-shutdown").remedy.startswith("N8N_GRACEFUL_SHUTDOWN_TIMEOUT = 45:")
    bullmq = judged({}, TuningOptions(timing=WorkerTiming(QueueLibrary.BULLMQ, 60, 10, 30)))
    assert finding(bullmq, "slow-recovery").remedy.startswith("Set lockDuration = 30000, lockRenewTime = 5000 and")


def test_no_check_is_grave_whatever_else_is_good() -> None:
    assert "no-check" in of(WorkerTiming(stalled_interval=0))
    assert judged({"c.yaml": n8n("QUEUE_WORKER_STALLED_INTERVAL: 0")}).is_grave


def test_how_often_a_job_may_stall() -> None:
    assert "no-second-run" in of(WorkerTiming(max_stalled=0))
    assert "many-stalls" in of(WorkerTiming(max_stalled=10))
    assert of(WorkerTiming(max_stalled=1)).isdisjoint({"no-second-run", "many-stalls"})
    assert "fails-at-once" in kinds(judged({"c.yaml": n8n("A: b", version="2.0.0")}))
    assert "fails-at-once" not in kinds(judged({"c.yaml": n8n("A: b")}))


def test_a_lock_that_any_pause_outlasts() -> None:
    assert "short-lock" in of(WorkerTiming(lock=2, renew=0.5, stalled_interval=1))


def test_nothing_promises_that_n8n_2_runs_a_lost_job_again() -> None:
    lines = (
        "QUEUE_WORKER_LOCK_DURATION: 9000",
        "QUEUE_WORKER_LOCK_RENEW_TIME: 9000",
        "QUEUE_WORKER_STALLED_INTERVAL: 90000",
    )
    found = judged({"c.yaml": n8n(*lines, version="2.41.1")})
    said = " ".join(one.says for one in found.findings)
    for word in ("run twice", "waits for its recovery", "jobs are taken", "waits about"):
        assert word not in said
    assert "counts as running for about 210 s, at worst 390 s, and is then failed, not run again." in said
    assert finding(found, "short-lock").says.endswith("they are failed while they still run.")
    assert finding(found, "renewed-too-late").says.endswith("jobs are failed while they still run.")
    stopped = finding(judged({"k.yaml": KUBERNETES.replace("1.123.5", "2.41.1")}), "short-shutdown")
    assert stopped.says == "A job that runs longer than 30 s is killed at each deployment, and is not run again."


def test_the_old_name_alone_is_only_old() -> None:
    found = judged({"c.yaml": n8n("QUEUE_WORKER_TIMEOUT: 50")})
    assert finding(found, "old-name").severity is Severity.LOW
    assert found.outlooks[0].setup.timing.shutdown == 50


def test_the_old_name_overrides_the_new_one() -> None:
    found = judged({"c.yaml": n8n("QUEUE_WORKER_TIMEOUT: 20", "N8N_GRACEFUL_SHUTDOWN_TIMEOUT: 90")})
    assert finding(found, "overriding-name").severity is Severity.MEDIUM
    assert found.outlooks[0].setup.timing.shutdown == 20


def test_before_1_22_the_old_name_is_the_name() -> None:
    lines = ("QUEUE_WORKER_TIMEOUT: 50", "N8N_GRACEFUL_SHUTDOWN_TIMEOUT: 90")
    found = judged({"c.yaml": n8n(*lines, version="1.21.1")})
    assert found.outlooks[0].setup.timing.shutdown == 50
    assert "N8N_GRACEFUL_SHUTDOWN_TIMEOUT does nothing" in finding(found, "ignored-variable").says


@pytest.mark.parametrize("value", ["60_000", "60s", "sixty", "-1", "1e400", "NaN"])
def test_what_is_no_number_leaves_the_default(value: str) -> None:
    found = judged({"c.yaml": n8n(f"QUEUE_WORKER_LOCK_DURATION: '{value}'")})
    assert "no-number" in kinds(found)
    assert found.outlooks[0].setup.timing.lock == 60


def test_what_stands_there_instead_of_a_number_is_not_repeated() -> None:
    found = judged({"c.yaml": n8n("QUEUE_WORKER_LOCK_DURATION: hunter2")})
    assert "hunter2" not in repr(found.findings)


def test_a_probe_that_nobody_answers_restarts_a_worker_that_works() -> None:
    assert finding(judged({"k.yaml": KUBERNETES}), "closed-health-check").severity is Severity.HIGH
    told = with_variable("QUEUE_HEALTH_CHECK_ACTIVE", "true")
    assert "closed-health-check" not in kinds(judged({"k.yaml": told}))


def test_a_secret_that_was_not_given_leaves_the_health_endpoint_unknown_and_says_so() -> None:
    head = "          env:\n"
    named = f"          envFrom: [{{secretRef: {{name: n8n-env}}}}]\n{head}"
    said = finding(judged({"k.yaml": KUBERNETES.replace(head, named)}), "unknown-health-endpoint")
    assert "is unknown: the Secret n8n-env was not given. Without QUEUE_HEALTH_CHECK_ACTIVE=true" in said.says
    assert said.severity is Severity.LOW


def test_a_secret_with_the_health_endpoint_is_not_read() -> None:
    reference = "{secretKeyRef: {name: s, key: QUEUE_HEALTH_CHECK_ACTIVE}}"
    head = "          env:\n"
    more = f"            - {{name: QUEUE_HEALTH_CHECK_ACTIVE, valueFrom: {reference}}}\n"
    found = judged({"k.yaml": KUBERNETES.replace(head, head + more)})
    assert "its value is not readable here" in finding(found, "unknown-health-endpoint").says
    assert "closed-health-check" not in kinds(found)


@pytest.mark.parametrize("version", ["1.123.5", "2.41.1"])
def test_a_health_check_that_is_missing_is_asked_for_without_what_is_there(version: str) -> None:
    lines = ("QUEUE_HEALTH_CHECK_ACTIVE: 'true'",)
    said = finding(judged({"c.yaml": n8n(*lines, version=version)}), "no-health-check")
    assert said.remedy == "Write a healthcheck that asks http://localhost:5678/healthz."
    said = finding(judged({"c.yaml": n8n("A: b", version=version)}), "no-health-check")
    assert said.remedy.startswith("QUEUE_HEALTH_CHECK_ACTIVE=true, and a healthcheck")


@pytest.mark.parametrize(("given", "is_told"), [(None, True), (10_000, True), (29_999, True), (30_000, False)])
def test_a_process_that_exits_before_redis_is_back(given: int | None, is_told: bool) -> None:
    lines = (f"QUEUE_BULL_REDIS_TIMEOUT_THRESHOLD: {given}",) if given else ()
    files = {"c.yaml": n8n("A: b", *lines)}
    found = judged(files)
    assert ("redis-threshold" in kinds(found)) is is_told
    if is_told:
        assert f"Redis is away for {(given or 10_000) / 1000:g} s" in finding(found, "redis-threshold").says
        after = patched(found, files)["c.yaml"]
        assert after.count("QUEUE_BULL_REDIS_TIMEOUT_THRESHOLD") == 1
        assert "redis-threshold" not in kinds(judged({"c.yaml": after}))


def test_what_was_not_given_may_say_how_long_redis_may_be_away() -> None:
    text = n8n("A: b").replace("    environment", "    env_file: secret.env\n    environment")
    assert finding(judged({"c.yaml": text}), "redis-threshold").says.endswith(", unless secret.env says otherwise.")


@pytest.mark.parametrize(
    ("line", "version", "severity"),
    [
        ("EXECUTIONS_PROCESS: main", "1.123.5", Severity.LOW),
        ("EXECUTIONS_PROCESS: own", "2.41.1", Severity.HIGH),
        ("N8N_RUNNERS_ENABLED: true", "2.41.1", Severity.LOW),
        ("N8N_RUNNERS_ENABLED: true", "1.123.5", None),
        ("N8N_EXPRESSION_EVALUATOR: tournament", "2.41.1", Severity.LOW),
    ],
)
def test_what_n8n_itself_calls_deprecated(line: str, version: str, severity: Severity | None) -> None:
    files = {"c.yaml": n8n(line, "A: b", version=version)}
    found = judged(files)
    said = {one.severity for one in found.findings if one.kind == "deprecated-variable"}
    assert said == ({severity} if severity else set())
    assert (line in patched(found, files)["c.yaml"]) is (severity is None)


@pytest.mark.parametrize(
    ("value", "version", "severity"),
    [
        ("postgresdb", "2.41.1", None),
        ("sqlite", "2.41.1", Severity.MEDIUM),
        ("mysqldb", "2.41.1", Severity.HIGH),
        ("mariadb", "1.123.5", Severity.LOW),
    ],
)
def test_a_database_that_queue_mode_does_not_support(value: str, version: str, severity: Severity | None) -> None:
    found = judged({"c.yaml": n8n(f"DB_TYPE: {value}", version=version)})
    said = {one.severity for one in found.findings if one.kind == "unsupported-database"}
    assert said == ({severity} if severity else set())


def test_code_nodes_have_less_time_than_the_rest() -> None:
    said = finding(judged({"c.yaml": n8n("N8N_GRACEFUL_SHUTDOWN_TIMEOUT: 45", version="2.41.1")}), "code-nodes-cut")
    assert (said.severity, said.arithmetic) == (Severity.NOTE, "0.8 × shutdown 45 = 36 s")
    assert "code-nodes-cut" not in kinds(judged({"c.yaml": n8n("A: b")}))


def test_without_a_probe_nobody_looks() -> None:
    assert "no-health-check" in kinds(judged({"k.yaml": KUBERNETES.replace(PROBE, "")}))
    assert "no-health-check" not in kinds(judged({"k.yaml": KUBERNETES}))


def test_a_scaler_that_takes_all_workers_at_once() -> None:
    assert "all of them within 15 s" in finding(judged({"k.yaml": KUBERNETES}), "hasty-scale-down").says
    calm = "{stabilizationWindowSeconds: 600, policies: [{type: Pods, value: 1, periodSeconds: 60}]}"
    text = f"{KUBERNETES}  behavior: {{scaleDown: {calm}}}\n"
    assert "hasty-scale-down" not in kinds(judged({"k.yaml": text}))


def test_a_scaler_of_something_else_is_none_of_ours() -> None:
    other = KUBERNETES.replace("kind: Deployment, name: n8n-worker}", "kind: Deployment, name: shop}")
    assert "hasty-scale-down" not in kinds(judged({"k.yaml": other}))


def test_workers_that_open_more_connections_than_there_are() -> None:
    text = with_variable("DB_POSTGRESDB_POOL_SIZE", "20")
    assert finding(judged({"k.yaml": text}), "many-connections").arithmetic == "10 × 20 = 200"


@pytest.mark.parametrize(
    "command",
    [
        "redis-server --maxmemory-policy allkeys-lru",
        '["redis-server", "--maxmemory-policy", "volatile-ttl"]',
        "redis-server --maxmemory-policy=allkeys-lfu",
    ],
)
def test_a_store_that_throws_locks_away(command: str) -> None:
    found = judged({"c.yaml": f"services:\n  redis:\n    image: valkey:9\n    command: {command}\n"})
    assert finding(found, "eviction").severity is Severity.HIGH


def test_a_store_by_its_configuration_file() -> None:
    conf = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: redis}\ndata:\n  redis.conf: |\n    maxmemory 1gb\n"
    found = judged({"r.yaml": conf + "    maxmemory-policy allkeys-lru\n"})
    assert finding(found, "eviction").where == "redis (r.yaml:7)"
    assert "maxmemory-policy noeviction" in found.patches[0].after


def test_a_store_that_throws_nothing_away_is_good() -> None:
    safe = COMPOSE.replace("allkeys-lru", "noeviction")
    assert "eviction" not in kinds(judged({"c.yaml": safe}))


def test_what_runs_is_judged_without_any_file() -> None:
    stores = (ObservedStore("main", ("maxmemory-policy is allkeys-lru: …",), holds_state=True),)
    running = ObservedSettings((ObservedQueue(QUEUE, QueueLibrary.BULL, active=3, is_unwatched=True),), stores)
    assert kinds(report(DeploymentFiles(), TuningOptions(), running)) == {
        "shared-database",
        "eviction",
        "nobody-checks",
    }


def test_files_that_are_not_in_force() -> None:
    files = {"c.yaml": n8n("QUEUE_WORKER_LOCK_DURATION: 30000")}
    seen = ObservedQueue(QUEUE, QueueLibrary.BULL, is_n8n=True, lock=60, interval=30)
    assert finding(_with(files, seen), "not-in-force").arithmetic == "seen 60 s, written 30 s"
    shorter = ObservedQueue(QUEUE, QueueLibrary.BULL, is_n8n=True, lock=29, interval=12)
    assert "not-in-force" not in kinds(_with(files, shorter)), "what is shorter may have run down"
    other = ObservedQueue(QUEUE, QueueLibrary.BULL, lock=60)
    assert "not-in-force" not in kinds(_with(files, other)), "another application's queue"


def _with(files: dict[str, str], seen: ObservedQueue) -> TuningReport:
    given = parse_files((name, text.encode()) for name, text in files.items())
    return report(given, TuningOptions(), ObservedSettings((seen,)))


def test_a_renewal_of_nothing_is_half_of_the_lock() -> None:
    """Bull takes 0 for what nobody said."""
    found = judged({"c.yaml": n8n("QUEUE_WORKER_LOCK_RENEW_TIME: 0")})
    assert found.outlooks[0].setup.timing.renew == 30


def test_what_n8n_takes_by_itself_is_in_the_sum_and_no_fault_of_the_settings() -> None:
    slow = finding(judged({"c.yaml": n8n(version="2.41.1")}), "slow-recovery")
    assert slow.arithmetic == "lock 60 + check 30 + n8n's own 30 = 120 s"
    lines = ("QUEUE_WORKER_LOCK_DURATION: 30000", "QUEUE_WORKER_LOCK_RENEW_TIME: 5000")
    found = judged({"c.yaml": n8n(*lines, "QUEUE_WORKER_STALLED_INTERVAL: 15000", version="2.41.1")})
    assert "slow-recovery" not in [one.kind for one in found.findings]
