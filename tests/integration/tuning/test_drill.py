"""A fire drill with real workers: its stages, its outcomes, and that nothing of it is left."""

from __future__ import annotations

import json
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from recovery.config import current
from recovery.domain.drills.plan import DrillLibrary, StopSignal
from recovery.domain.drills.results import DrillRound, DrillStage, RoundOutcome
from recovery.drills import location, runtimes
from recovery.drills.cleanup_process import sweep
from recovery.drills.cli_report import report_text
from recovery.drills.drill_orders import NOTE
from recovery.drills.runner import DrillReport
from recovery.drills.workers import DrillWorkerNotStarted, DrillWorkers
from recovery.errors import BadOrder, DeploymentMissing, Unreachable, Unsupported
from recovery.management.arguments import UNREACHABLE, WRONG_CALL
from recovery.models import AuditEntry
from recovery.processes.child import Child
from recovery.processes.signals import STOP_SIGNALS
from recovery.stores.registry import open_wire
from tests.support.processes.drilling import SHORT_WORDS, Watch, alive, left, package, plan_for
from tests.support.processes.processes import free_port
from tests.support.stores.sentinel import Sentinel
from tests.support.stores.stores import Store
from tests.support.waiting import until

PLACE = '[[deployments]]\nname = "{name}"\nurl = "{url}"\n'
OTHERS = {b"unstall-drillx:1:id": b"1", b"unstall-drill": b"mine", b"bull:unstall-drill:wait": b"x"}


@pytest.fixture
def state(watch: Callable[..., None], state_store: Store) -> Store:
    """Our own store, with keys in it that a careless sweep would take."""
    watch(UNSTALL_STATE_URL=state_store.url)
    for key, value in OTHERS.items():
        state_store.client.set(key, value)
    return state_store


def test_what_a_process_says_last_is_heard_when_it_is_read_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps({"event": "added", "job": "7"})
    says = runtimes.WorkerRuntime(
        DrillLibrary.BULLMQ, (sys.executable, "-c", f"import sys; print({line!r}, file=sys.stderr)"), "6"
    )
    crew = DrillWorkers(plan_for("bullmq6"), says, {}, "q")
    hear, looked = crew._hear, threading.Event()

    def late(name: str, said: str) -> None:
        looked.wait(10)
        hear(name, said)

    def rest(seconds: float) -> None:
        pass  # it looks again at once, and so finds the process ended before its line was read

    ended = Child.ended

    def seen(child: Child) -> int | None:
        if (status := ended(child)) is not None:
            looked.set()
        return status

    monkeypatch.setattr(crew, "_hear", late)
    monkeypatch.setattr(Child, "ended", seen)
    assert crew.add(rest) == "7"


def is_clean(store: Store, watch: Watch) -> None:
    assert left(store) == []
    assert set(store.client.keys()) == set(OTHERS)
    assert watch.workers, "no worker was seen, so none that outlives its drill either"
    until(lambda: not alive(watch.workers), what="its workers are gone")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.node) for name in ("bull4", "bullmq5", "bullmq6")] + ["python"]
)
def test_every_stage_of_a_recovery_is_timed(name: str, state: Store) -> None:
    watch, plan = Watch(), plan_for(name, rounds=2 if name == "python" else 1)
    drill = watch.run(plan, name)
    one = drill.rounds[0]
    assert one.end is RoundOutcome.AGAIN
    assert one.is_complete
    stages = {stage.stage: stage for stage in one.stages}
    assert list(stages) == [stage for stage in DrillStage if stage is not DrillStage.FAILED]
    assert all(stage.at is not None for stage in one.stages), one.stages
    assert sum(stage.took or 0 for stage in one.stages) == one.total == stages[DrillStage.AGAIN].at
    # A lock of 600 ms that was taken or renewed at most 300 ms ago; the rest is a busy machine's.
    assert 200 <= (stages[DrillStage.UNLOCKED].at or 0) <= 1500
    assert (stages[DrillStage.BACK].at or 0) >= (stages[DrillStage.UNLOCKED].at or 0)
    assert watch.happened[:2] == ["picked up", "signal"]
    assert [one.number for one in drill.rounds] == list(range(1, plan.rounds + 1))
    assert drill.cleaned
    assert drill.cleaned >= 4
    is_clean(state, watch)


@pytest.mark.node
@pytest.mark.parametrize("name", ["bull4", "bullmq5"])
def test_a_job_that_may_not_stall_is_failed_by_the_library(name: str, state: Store) -> None:
    one = Watch().run(plan_for(name, max_stalled=0), name).rounds[0]
    assert one.end is RoundOutcome.FAILED
    assert one.stages[-1].stage is DrillStage.FAILED
    assert one.total == one.stages[-1].at
    assert "stalled more than" in one.says


@pytest.mark.node
def test_a_grace_that_is_too_short_meets_the_worker_with_sigkill(state: Store) -> None:
    plan = plan_for("bullmq6", means=StopSignal.TERM, shutdown=30_000, grace=700, wait=0)
    one = Watch().run(plan, "bullmq6").rounds[0]
    assert one.end is RoundOutcome.AGAIN
    assert "killed with SIGKILL" in one.says
    ended = one.stages[0]
    assert ended.stage is DrillStage.ENDED
    assert (ended.at or 0) >= 700


@pytest.mark.node
def test_a_worker_that_is_let_finish_loses_nothing(state: Store) -> None:
    plan = plan_for("bull4", means=StopSignal.TERM, shutdown=20_000, grace=20_000, job=1500)
    one = Watch().run(plan, "bull4").rounds[0]
    assert (one.end, one.total, one.stages) == (RoundOutcome.IN_TIME, None, ())


@pytest.mark.node
def test_a_lock_that_ends_before_it_is_renewed_makes_the_job_run_twice(state: Store) -> None:
    plan = plan_for("bullmq5", lock=400, renew=60_000, stalled_interval=400, wait=15_000)
    watch = Watch()
    drill = watch.run(plan, "bullmq5")
    assert (drill.rounds[0].end, drill.rounds[0].total) == (RoundOutcome.TWICE, None)
    assert "signal" not in watch.happened
    is_clean(state, watch)


@pytest.mark.node
def test_a_job_that_is_failed_while_its_worker_lives_is_no_recovery(state: Store) -> None:
    plan = plan_for("bull4", lock=400, renew=60_000, stalled_interval=400, wait=15_000, max_stalled=0)
    one = Watch().run(plan, "bull4").rounds[0]
    assert (one.end, one.total) == (RoundOutcome.TWICE, None)
    assert "failed while its worker was still running it: job stalled" in one.says


@pytest.mark.node
def test_with_one_worker_nobody_takes_over_and_no_more_rounds_are_tried(state: Store) -> None:
    watch = Watch()
    drill = watch.run(plan_for("bullmq5", workers=1, timeout=1500, rounds=3), "bullmq5")
    assert [one.end for one in drill.rounds] == [RoundOutcome.LEFT]
    assert drill.summary.p50 is None
    back = next(stage for stage in drill.rounds[0].stages if stage.stage is DrillStage.BACK)
    assert (back.at, back.took) == (None, None)
    assert "skipped" in drill.says
    is_clean(state, watch)


# -- however it ends


def test_nothing_is_left_of_a_drill_that_was_stopped(state: Store) -> None:
    watch = Watch(stop_at="signal")
    with pytest.raises(KeyboardInterrupt):
        watch.run(plan_for("python"), "python")
    is_clean(state, watch)


@pytest.mark.node
def test_a_library_that_will_not_work_like_this_says_so(state: Store) -> None:
    watch = Watch()
    with pytest.raises(DrillWorkerNotStarted, match="stalledInterval must be greater than 0"):
        watch.run(plan_for("bullmq5", stalled_interval=0), "bullmq5")
    is_clean(state, watch)


def test_only_keys_of_the_drills_own_name_are_swept(state: Store) -> None:
    kept = ["unstall-drill:aa:1", "unstall-drill:ab*:x", "unstall-drill:a", "unstall-drill:[ab]:id"]
    for key in (*kept, "unstall-drill:ab:id", "unstall-drill:ab:1:lock"):
        state.client.set(key, "1")
    wire = open_wire(location.deployment_of_drill(current(), ""))
    assert sweep(wire, "unstall-drill:ab") == 2
    assert set(left(state)) == {key.encode() for key in kept}
    assert sweep(wire, "unstall-drill:[ab]") == 1
    for base in ("bull:jobs", "", "*", "unstall-drill"):
        with pytest.raises(ValueError, match="not a drill's"):
            sweep(wire, base)
    wire.close()


# -- where, and with what


def test_a_deployment_is_used_when_it_is_named_with_its_login_and_its_tls(
    watch: Callable[..., None], serve: Callable[..., Store], certificates: Path, tmp_path: Path
) -> None:
    store = serve("redis", tls=certificates, options={"requirepass": "se:cr@et/"})
    more = f'tls_ca = "{certificates}/ca.crt"\npassword = "se:cr@et/"\n'
    (tmp_path / "unstall.toml").write_text(PLACE.format(name="main", url=store.url) + more)
    watch(UNSTALL_CONFIG=str(tmp_path / "unstall.toml"))
    holder = Watch()
    assert holder.run(plan_for("python"), "python", on="main").rounds[0].end is RoundOutcome.AGAIN
    assert holder.workers
    assert left(store) == []


def test_where_nothing_may_be_written_or_nobody_answers_there_is_no_drill(
    watch: Callable[..., None], state_store: Store, tmp_path: Path
) -> None:
    read_only = PLACE.format(name="patient", url="redis://127.0.0.1:7001/0") + "read_only = true\n"
    cluster = PLACE.format(name="many", url="redis+cluster://127.0.0.1:7000")
    closed = PLACE.format(name="closed", url=f"redis://127.0.0.1:{free_port()}/0")
    (tmp_path / "unstall.toml").write_text(read_only + cluster + closed)
    watch(UNSTALL_CONFIG=str(tmp_path / "unstall.toml"), UNSTALL_STATE_URL=state_store.url)
    for name, error in (("patient", BadOrder), ("many", Unsupported), ("nobody", DeploymentMissing)):
        with pytest.raises(error, match=name):
            location.deployment_of_drill(current(), name)
    holder = Watch()
    with pytest.raises(Unreachable):
        holder.run(plan_for("python"), "python", on="closed")
    assert holder.workers == set()


@pytest.mark.django_db
@pytest.mark.usefixtures("signals")
def test_what_the_shell_does_in_a_deployment_is_in_the_audit_before_it_is_tried(
    watch: Callable[..., None], tmp_path: Path
) -> None:
    closed = f"redis://127.0.0.1:{free_port()}/0"
    (tmp_path / "unstall.toml").write_text(f'[[deployments]]\nname = "main"\nurl = "{closed}"\n')
    watch(UNSTALL_CONFIG=str(tmp_path / "unstall.toml"))
    with pytest.raises(CommandError) as refused:
        call_command("drill", "--library=python", "--on=main", stderr=StringIO())
    assert refused.value.returncode == UNREACHABLE
    entry = AuditEntry.objects.get()
    assert (entry.act, json.loads(entry.body)["on"]) == (NOTE, "main")


def test_a_drill_of_a_sentinel_goes_to_its_master(
    sentinel: Sentinel, watch: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "unstall.toml").write_text(f'[[deployments]]\nname = "main"\nurl = "{sentinel.url}"\n')
    watch(UNSTALL_CONFIG=str(tmp_path / "unstall.toml"))
    where = location.deployment_of_drill(current(), "main")
    wire = open_wire(where)
    options = location.connection_options(where, wire)
    wire.close()
    assert (options["host"], options["port"]) == ("127.0.0.1", sentinel.master.port)


def test_what_is_missing_is_said_with_how_to_have_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, watch: Callable[..., None]
) -> None:
    monkeypatch.setenv("NODE_PATH", str(tmp_path))
    with pytest.raises(Unsupported, match="No package bullmq was found"):
        runtimes.find(DrillLibrary.BULLMQ)
    with pytest.raises(Unsupported, match="No package bull was found"):
        runtimes.find(DrillLibrary.BULL, package("bullmq5"))
    (tmp_path / "bull").mkdir()
    (tmp_path / "bull" / "package.json").write_text('["no table"]')
    with pytest.raises(Unsupported, match="NODE_PATH"):
        runtimes.find(DrillLibrary.BULL)


@pytest.mark.node
def test_a_library_is_found_by_its_folder_and_by_node_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bull").symlink_to(package("bull4"))
    monkeypatch.setenv("NODE_PATH", f"/nowhere:{tmp_path}")
    found, named = runtimes.find(DrillLibrary.BULL), runtimes.find(DrillLibrary.BULL, package("bull4"))
    assert found == named
    assert found.version.startswith("4.")


@pytest.fixture
def signals() -> Iterator[None]:
    """The command listens to signals, and a test process has listeners of its own."""
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    yield
    for number, listener in before.items():
        signal.signal(number, listener)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--rounds=0",), WRONG_CALL, "--rounds: Write 1 to 50."),
        (("--wait=3min",), WRONG_CALL, "make the job longer"),
        (("--library=python", "--on=\x1b[31m"), WRONG_CALL, "There is no deployment named"),
        (("--node-modules=/nowhere",), WRONG_CALL, "No package bullmq was found in /nowhere"),
        (("--library=python",), UNREACHABLE, "refused"),
    ],
    ids=["rounds", "wait", "deployment", "library", "store"],
)
@pytest.mark.usefixtures("signals")
def test_a_wrong_call_is_refused_before_anything_is_started(
    arguments: tuple[str, ...], code: int, words: str, watch: Callable[..., None]
) -> None:
    watch(UNSTALL_STATE_URL=f"redis://127.0.0.1:{free_port()}/0")
    with pytest.raises(CommandError, match=re.escape(words)) as refused:
        call_command("drill", *arguments, stderr=StringIO())
    assert refused.value.returncode == code
    assert "\x1b" not in str(refused.value)


def test_a_time_that_is_none_is_refused_with_what_would_be_right() -> None:
    with pytest.raises(CommandError, match="500ms, 30s, 2min or 1h"):
        call_command("drill", "--lock=1x")


@pytest.mark.usefixtures("signals")
def test_the_shell_gets_a_table_or_json(state: Store) -> None:
    out, err = StringIO(), StringIO()
    call_command("drill", "--library=python", *SHORT_WORDS, "--json", stdout=out, stderr=err)
    told = json.loads(out.getvalue())
    one = told["rounds"][0]
    assert (one["end"], one["total"], told["recovered"]) == ("picked up again", told["p50"], 1)
    assert [stage["stage"] for stage in one["stages"]] == [
        stage.value for stage in DrillStage if stage is not DrillStage.FAILED
    ]
    assert told["plan"]["lock"] == 600
    assert "round 1: picked up again" in err.getvalue()
    program = runtimes.find(DrillLibrary.PYTHON)
    drill = DrillReport(
        plan_for("python"), told["base"], "", program.version, [DrillRound.of_json(one)], told["cleaned"]
    )
    table = report_text(drill)
    for words in ("lock ended", "in all", "predicted", "p50", f"Cleaned up: {told['cleaned']} keys"):
        assert words in table
