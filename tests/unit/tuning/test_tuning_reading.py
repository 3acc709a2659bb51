"""Environment files, compose files and manifests, as people write them."""

from __future__ import annotations

import pytest

from recovery.domain.queues.types import QueueLibrary
from recovery.domain.tuning.timing import WorkerTiming
from recovery.domain.tuning.worker_setup import TuningOptions
from tests.support.tuning import KUBERNETES, finding, judged, kinds

WORKER = "    image: n8nio/n8n:1.123.5\n    command: worker\n"


def timing(files: dict[str, str], options: TuningOptions | None = None) -> WorkerTiming:
    (outlook,) = judged(files, options).outlooks
    return outlook.setup.timing


@pytest.mark.parametrize(
    "line",
    [
        "QUEUE_WORKER_LOCK_DURATION=45000",
        "export QUEUE_WORKER_LOCK_DURATION='45000'",
        'QUEUE_WORKER_LOCK_DURATION="45000" # ms',
        "  QUEUE_WORKER_LOCK_DURATION = 45000  ",
        "NOTE='several\nlines'\nQUEUE_WORKER_LOCK_DURATION=45000\r",
        "QUEUE_WORKER_LOCK_DURATION=1\nQUEUE_WORKER_LOCK_DURATION=45000",
    ],
)
def test_an_environment_file_as_any_shell_writes_it(line: str) -> None:
    assert timing({"a.env": f"# ours\n\nPATH\n{line}\n".replace("PATH\n", "A=b\nPATH\n")}).lock == 45


def test_variables_alone_say_nothing_of_how_a_worker_is_stopped() -> None:
    said = timing({"a.env": "N8N_GRACEFUL_SHUTDOWN_TIMEOUT=30\n"})
    assert said.grace is None
    assert said.shutdown == 30


def test_a_mapping_of_variables_is_an_environment() -> None:
    assert timing({"values.yaml": "QUEUE_WORKER_LOCK_DURATION: 45000\nEXECUTIONS_MODE: queue\n"}).lock == 45


@pytest.mark.parametrize(
    ("written", "seconds"), [("", 10), ("stop_grace_period: 1m30s", 90), ("stop_grace_period: 45s", 45)]
)
def test_a_compose_service_has_the_grace_period_of_docker(written: str, seconds: float) -> None:
    assert timing({"c.yaml": f"services:\n  worker:\n{WORKER}    {written}\n"}).grace == seconds


def test_the_environment_overrides_the_environment_file() -> None:
    files = {
        "c.yaml": f"services:\n  worker:\n{WORKER}    env_file: conf/a.env\n    environment:\n"
        "      QUEUE_WORKER_LOCK_DURATION: 45000\n",
        "a.env": "QUEUE_WORKER_LOCK_DURATION=50000\nQUEUE_WORKER_STALLED_INTERVAL=20000\n",
    }
    said = timing(files)
    assert (said.lock, said.stalled_interval) == (45, 20)


def test_a_file_that_was_not_given_is_said() -> None:
    found = judged({"c.yaml": f"services:\n  worker:\n{WORKER}    env_file:\n      - path: gone.env\n"})
    assert any("also reads gone.env" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("written", "lock"), [("${LOCK:-45000}", 45), ("${LOCK-45000}", 45), ("$LOCK", 60), ("${LOCK}", 60)]
)
def test_a_reference_has_its_default_and_else_nobody_knows(written: str, lock: float) -> None:
    text = f"services:\n  worker:\n{WORKER}    environment:\n      QUEUE_WORKER_LOCK_DURATION: {written}\n"
    found = judged({"c.yaml": text})
    assert found.outlooks[0].setup.timing.lock == lock
    is_hidden = any("unknown values: QUEUE_WORKER_LOCK_DURATION" in remark for remark in found.remarks)
    assert is_hidden == (lock == 60)


def test_only_what_runs_jobs_is_judged() -> None:
    text = f"""services:
  main:
    image: n8nio/n8n:1.123.5
  webhook:
    image: n8nio/n8n:1.123.5
    command: webhook
  worker:
{WORKER}"""
    assert [outlook.setup.name for outlook in judged({"c.yaml": text}).outlooks] == ["worker"]


def test_a_config_map_of_the_same_files_is_read_and_another_is_said() -> None:
    head = KUBERNETES.replace(
        "          env:\n", "          envFrom:\n            - configMapRef: {name: conf}\n"
        "            - secretRef: {name: keys}\n          env:\n"
    )  # fmt: skip
    conf = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf}\ndata:\n"
    conf += "  QUEUE_WORKER_STALLED_INTERVAL: '20000'\n"
    found = judged({"k.yaml": head, "conf.yaml": conf})
    assert found.outlooks[0].setup.timing.stalled_interval == 20
    assert any("the Secret keys" in remark for remark in found.remarks)
    assert any(made.file == "conf.yaml" and "15000" in made.diff for made in found.patches)


def test_of_a_secret_only_the_names_are_taken() -> None:
    text = KUBERNETES.replace("          env:\n", "          envFrom: [{secretRef: {name: keys}}]\n          env:\n")
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: keys}\nstringData: {QUEUE_WORKER_STALLED_INTERVAL: '1'}\n"
    found = judged({"k.yaml": text, "s.yaml": secret})
    assert found.outlooks[0].setup.timing.stalled_interval == 30
    assert any("unknown values: QUEUE_WORKER_STALLED_INTERVAL" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        ("sleep: {seconds: 7}", 7),
        ('exec: {command: ["sleep", "7"]}', 7),
        ('exec: {command: ["/bin/sh", "-c", "sleep 7"]}', 7),
        ('exec: {command: ["/bin/sh", "-c", "drain && sleep 7"]}', 0),
        ("httpGet: {path: /bye, port: 1}", 0),
    ],
)
def test_a_pause_before_sigterm_counts_where_its_length_is_known(hook: str, seconds: float) -> None:
    text = KUBERNETES.replace("          env:\n", f"          lifecycle: {{preStop: {{{hook}}}}}\n          env:\n")
    found = judged({"k.yaml": text})
    assert found.outlooks[0].setup.timing.pre_stop == seconds
    assert ("unknown-pause" in kinds(found)) == (seconds == 0)
    assert "no-pre-stop" not in kinds(found)


def test_a_list_of_manifests_is_each_of_them() -> None:
    indented = "".join(f"  {line}\n" for line in KUBERNETES.split("---")[0].splitlines()[1:])
    text = "apiVersion: v1\nkind: List\nitems:\n- " + indented[2:]
    assert timing({"list.yaml": text}).lock == 60


def test_what_helm_says_around_a_manifest_is_left_out() -> None:
    text = f"NAME: n8n\nNAMESPACE: shop\nHOOKS:\nMANIFEST:\n---\n{KUBERNETES}\nNOTES:\n1. Get: [the url\n"
    assert timing({"dry-run.txt": text}).lock == 60


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
def test_other_kinds_of_pods_count(kind: str) -> None:
    assert timing({"k.yaml": KUBERNETES.replace("kind: Deployment\nmetadata", f"kind: {kind}\nmetadata")}).lock == 60


def test_a_person_says_the_version_that_no_image_says() -> None:
    text = "QUEUE_WORKER_MAX_STALLED_COUNT=1\n"
    assert "ignored-variable" in kinds(judged({"a.env": text}))
    assert any("the newest known version is assumed" in remark for remark in judged({"a.env": text}).remarks)
    old = judged({"a.env": text}, TuningOptions(version=(1, 110, 0)))
    assert "ignored-variable" not in kinds(old)
    assert old.outlooks[0].setup.timing.lock == 30


def test_workers_whose_options_stand_in_their_code() -> None:
    text = "services:\n  api:\n    image: shop\n  mail-worker:\n    image: shop\n    command: node worker.js\n"
    (outlook,) = judged({"c.yaml": text}, TuningOptions(timing=WorkerTiming(QueueLibrary.BULLMQ, shutdown=20))).outlooks
    assert outlook.setup.name == "mail-worker"
    assert outlook.setup.timing.grace == 10
    assert outlook.is_out_of_reach
    (named,) = judged({"c.yaml": text}, TuningOptions(timing=WorkerTiming(), workload="api")).outlooks
    assert named.setup.name == "api"


def test_without_a_file_a_librarys_defaults_are_judged() -> None:
    found = judged({}, TuningOptions(timing=WorkerTiming(QueueLibrary.BULLMQ)))
    assert finding(found, "slow-recovery").arithmetic == "lock 30 + check 30 = 60 s"


def test_what_has_no_worker_says_so() -> None:
    found = judged({"c.yaml": "services:\n  web:\n    image: nginx\n"})
    assert found.outlooks == ()
    assert any("No worker was found" in remark for remark in found.remarks)
