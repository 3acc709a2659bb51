"""`manage.py act` and `manage.py audit`: what a button does, for scripts, with exit statuses that can be trusted."""

from __future__ import annotations

import builtins
import json
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from recovery.domain.jobs import JobState
from recovery.models import AuditEntry
from recovery.reads.audit import queries as book
from recovery.stores import registry
from tests.support.acting import Bench
from tests.support.processes import processes
from tests.support.processes.web_process import environ_of
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db


class Ran(NamedTuple):
    status: int
    out: str
    error: str

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.out))

    @property
    def outcomes(self) -> dict[str, str]:
        return {one["job"]: one["outcome"] for one in self.document["results"]}


def run(*arguments: str) -> Ran:
    out, err = StringIO(), StringIO()
    try:
        call_command(*arguments, stdout=out, stderr=err)
    except CommandError as error:
        return Ran(error.returncode, out.getvalue(), f"{err.getvalue()}{error}")
    except SystemExit as end:
        return Ran(int(end.code or 0), out.getvalue(), err.getvalue())
    return Ran(0, out.getvalue(), err.getvalue())


def act(action: str, *arguments: str, queue: str = "bull:mail", reason: str = "a quiet night") -> Ran:
    return run("act", action, "--queue", queue, "--reason", reason, "--json", *arguments)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """A person who answers every question with this; what they were asked."""

    def sit_down(answer: str) -> list[str]:
        asked: list[str] = []

        def reply(question: str) -> str:
            asked.append(question)
            return answer

        monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
        monkeypatch.setattr(builtins, "input", reply)
        return asked

    return sit_down


def test_done_is_status_0_and_the_document_is_as_promised(bench: Bench) -> None:
    bench.orphan("1")
    ran = act("requeue", "--job", "1")
    assert ran.status == 0
    assert ran.document == {
        "action": "requeue",
        "queue": "main/bull:mail",
        "results": [{"job": "1", "outcome": "done", "why": "", "audit": 2}],
    }
    entry = AuditEntry.objects.get(number=1)
    assert (entry.actor_kind, entry.reason) == ("shell", "a quiet night")
    assert entry.actor


def test_something_refused_is_status_3(bench: Bench) -> None:
    bench.orphan("1")
    bench.held("2")
    ran = act("requeue", "--job", "1", "--job", "2", "--job", "3")
    assert ran.status == 3
    assert ran.outcomes == {"1": "done", "2": "refused", "3": "missing"}


def test_unchanged_is_no_refusal(bench: Bench) -> None:
    assert act("pause").status == 0
    ran = act("pause")
    assert (ran.status, ran.outcomes) == (0, {"": "unchanged"})


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--job", "1", "--all", "failed"),
        ("--all", "lost"),
        ("--job", "1", "--reason", " "),
        ("--job", "1", "--queue", "bull:nothing"),
    ],
)
def test_a_wrong_call_is_status_2(bench: Bench, arguments: tuple[str, ...]) -> None:
    bench.orphan("1")
    assert act("requeue", *arguments).status == 2
    assert AuditEntry.objects.count() == 0


@pytest.mark.parametrize("arguments", [("pause", "--job", "1"), ("clean",), ("clean", "--all", "orphan")])
def test_an_act_that_does_not_take_what_it_was_given_is_status_2(bench: Bench, arguments: tuple[str, ...]) -> None:
    assert act(*arguments).status == 2


@pytest.mark.parametrize("arguments", [("explode",), ("clean", "--all", "failed", "--limit", "-1")])
def test_what_cannot_be_read_is_status_2_of_the_process(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    command = ("manage.py", "act", *arguments, "--queue", "bull:mail", "--reason", "why")
    ended = processes.run(*command, environ=environ_of(tmp_path, {}))
    assert ended.returncode == 2, ended.stderr


def test_a_store_that_does_not_answer_is_status_4(bench: Bench) -> None:
    bench.queues.stop()
    try:
        assert act("requeue", "--job", "1").status == 4
    finally:
        bench.queues.start()


def test_what_is_not_supported_is_status_3(bench: Bench) -> None:
    bench.client.hset("bull:mail:meta", "version", "bullmq-pro:7.1.0")
    assert act("pause").status == 3


def test_a_dry_run_says_what_would_happen_and_does_nothing(bench: Bench) -> None:
    bench.orphan("1")
    bench.held("2")
    before = bench.dump()
    ran = act("requeue", "--job", "1", "--job", "2", "--dry-run")
    told = run("act", "requeue", "--queue", "bull:mail", "--job", "1", "--reason", "x", "--dry-run").out
    assert (ran.status, ran.outcomes, ran.document["dry_run"]) == (3, {"1": "done", "2": "refused"}, True)
    assert "would be requeued" in told
    assert bench.dump() == before
    assert AuditEntry.objects.count() == 0


def test_all_of_a_state_are_done_and_those_that_fail_later_are_not_taken_again(bench: Bench) -> None:
    ids = [str(number) for number in range(1200)]
    bench.failed(*ids)
    bench.failed("later", at=now_ms() + 60_000)
    ran = act("retry", "--all", "failed")
    assert ran.status == 0
    assert set(ran.outcomes.values()) == {"done"}
    assert len(ran.outcomes) == 1200
    assert bench.ids(JobState.FAILED) == ["later"]
    assert bench.ids(JobState.WAITING) == ids[::-1]
    assert book.verify().is_sound


def test_a_job_that_completed_meanwhile_runs_again_only_when_that_is_said(bench: Bench) -> None:
    bench.completed("1", "2")
    ran = act("retry", "--job", "1", "--force")
    assert (ran.status, ran.outcomes, bench.ids(JobState.COMPLETED)) == (3, {"1": "refused"}, ["1", "2"])
    assert act("retry", "--job", "1", "--rerun-completed").outcomes == {"1": "done"}
    assert act("retry", "--all", "completed").outcomes == {"2": "done"}, "who names the state has said it"


def test_all_of_a_verdict_leaves_those_that_are_held(bench: Bench) -> None:
    bench.orphan("1", "2")
    bench.held("3")
    bench.look()
    ran = act("requeue", "--all", "orphan")
    assert (ran.status, ran.outcomes) == (0, {"1": "done", "2": "done"})
    assert bench.ids(JobState.ACTIVE) == ["3"]


def test_all_can_be_narrowed_by_name_and_error(bench: Bench) -> None:
    bench.failed("1", reason="connect ECONNREFUSED 10.0.0.7:25")
    bench.failed("2", reason="no such user")
    bench.failed("3", reason="connect ECONNREFUSED 10.0.0.8:25", name="other")
    ran = act("retry", "--all", "failed", "--name", "mail", "--error", "connect ECONNREFUSED #.#.#.#:#")
    assert ran.outcomes == {"1": "done"}


def test_a_clean_goes_to_its_end(bench: Bench) -> None:
    bench.failed(*(str(number) for number in range(1200)), at=now_ms() - 60_000)
    ran = act("clean", "--all", "failed", "--older-than", "5")
    assert (ran.status, bench.ids(JobState.FAILED)) == (0, [])
    assert "1,200 removed" in ran.document["results"][0]["why"]


def test_force_is_what_it_takes_for_a_connected_holder(bench: Bench) -> None:
    bench.held("1")
    assert act("release", "--job", "1").status == 3
    assert act("release", "--job", "1", "--force").status == 0


def test_on_a_terminal_a_person_is_asked(bench: Bench, terminal: Callable[[str], list[str]]) -> None:
    bench.orphan("1")
    asked = terminal("n")
    assert act("requeue", "--job", "1").status == 3
    assert len(asked) == 1
    assert bench.ids(JobState.ACTIVE) == ["1"]
    terminal("y")
    assert act("requeue", "--job", "1").status == 0


def test_what_cannot_be_taken_back_wants_the_name_of_the_queue(
    bench: Bench, terminal: Callable[[str], list[str]]
) -> None:
    bench.waiting("1")
    terminal("y")
    assert act("drain").status == 3
    terminal("bull:mail")
    assert act("drain").status == 0


def test_yes_asks_nothing(bench: Bench, terminal: Callable[[str], list[str]]) -> None:
    bench.orphan("1")
    asked = terminal("n")
    assert act("requeue", "--job", "1", "--yes").status == 0
    assert asked == []


def test_a_queue_name_with_a_slash_is_no_deployment(bench: Bench) -> None:
    bench.client.hset("bull:a/b:meta", mapping={"version": "bullmq:5.81.5", "opts.maxLenEvents": "10000"})
    assert act("pause", queue="bull:a/b").status == 0
    assert act("pause", queue="main/bull:a/b").outcomes == {"": "unchanged"}


# -- audit


def test_verify_says_how_far_the_chain_is_whole(bench: Bench, tmp_path: Path) -> None:
    act("pause")
    head = run("audit", "head").out
    (tmp_path / "head.json").write_text(head)
    assert "#2" in run("audit", "verify").out
    act("resume")
    ran = run("audit", "verify", "--head", str(tmp_path / "head.json"))
    assert (ran.status, "#4" in ran.out) == (0, True)


def test_a_broken_chain_is_status_1(bench: Bench) -> None:
    act("pause")
    AuditEntry.objects.filter(number=1).update(actor="nobody")
    ran = run("audit", "verify")
    assert (ran.status, "#1 altered" in ran.error) == (1, True)
    document = json.loads(run("audit", "verify", "--json").out)
    assert (document["is_sound"], document["findings"][0]["number"]) == (False, 1)


def test_a_head_that_is_none_is_a_wrong_call(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "head.json").write_text("[]")
    assert run("audit", "verify", "--head", str(tmp_path / "head.json")).status == 2
    assert run("audit", "verify", "--head", str(tmp_path / "nothing")).status == 2


def test_the_export_is_json_or_csv(bench: Bench) -> None:
    act("pause")
    assert len(json.loads(run("audit", "export").out)) == 2
    assert run("audit", "export", "--format", "csv").out.splitlines()[0].startswith("number,at,phase")


def test_a_configuration_that_cannot_be_used_is_status_2(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSTALL_CONFIG", "/nonexistent/unstall.toml")
    registry.reset()
    assert act("pause").status == 2


def test_a_planted_name_of_a_parent_prints_no_code_of_a_terminal(bench: Bench) -> None:
    """The key of a parent is any text, and stands in the reason why a job is not removed."""
    key = b"stray:\x1b]0;owned\x07:1"
    bench.client.set(key, "1")
    bench.failed("1")
    bench.client.hset("bull:mail:1", "parentKey", key)
    ran = run("act", "remove", "--queue", "bull:mail", "--reason", "test", "--job", "1")
    assert "belongs to no known queue" in ran.out
    assert "\x1b" not in ran.out + ran.error
