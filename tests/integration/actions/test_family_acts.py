"""An act that changes children and parents as well: who may, what is told, and what the audit holds of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from recovery.actions import runner
from recovery.actions.bulk import bulk_runs
from recovery.domain.actions.types import AFFECTED_LISTED, Action, Actor, JobResult, Outcome
from recovery.models import AuditEntry
from recovery.reads.audit import queries as book
from tests.support.acting import ADMIN, BASE, OPERATOR, Bench
from tests.support.processes.families import child_of, job

pytestmark = pytest.mark.django_db
OTHER = "bull:invoices"


@pytest.fixture
def parent(bench: Bench) -> str:
    """Failed, with three children of its own queue and one of another."""
    key = job(bench.client, BASE, "p")
    for id in ("1", "2", "3"):
        child_of(bench.client, key, BASE, id)
    child_of(bench.client, key, OTHER, "9")
    bench.look()
    return key


def remove(bench: Bench, *ids: str, actor: Actor = ADMIN, **options: Any) -> JobResult:
    (result,) = runner.perform(bench.order(Action.REMOVE, *ids, actor=actor, **options))
    return result


def named(result: JobResult) -> set[str]:
    return {f"{one.change} {one.job}" for one in result.affected}


def is_there(bench: Bench, *keys: str) -> bool:
    return bool(bench.client.exists(*keys) == len(keys))


def bodies(phase: str) -> Sequence[dict[str, Any]]:
    return [json.loads(body) for body in AuditEntry.objects.filter(phase=phase).values_list("body", flat=True)]


def test_children_stay_by_default(bench: Bench, parent: str) -> None:
    result = remove(bench, "p")
    assert (result.outcome, result.affected) == (Outcome.DONE, ())
    assert is_there(bench, f"{BASE}:1", f"{BASE}:2", f"{BASE}:3", f"{OTHER}:9")


def test_one_who_acts_on_single_jobs_takes_no_children_along(bench: Bench, parent: str) -> None:
    before = bench.dump()
    result = remove(bench, "p", actor=OPERATOR, children=True)
    assert (result.outcome, result.affected) == (Outcome.REFUSED, ())
    assert "It would also change 3 other jobs" in result.why
    assert "which needs the permission to act in bulk" in result.why
    assert bench.dump() == before
    assert remove(bench, "p", actor=OPERATOR).outcome is Outcome.DONE


def test_children_of_the_same_queue_are_told_and_audited(bench: Bench, parent: str) -> None:
    result = remove(bench, "p", children=True)
    expected = {f"removed main/{BASE}#{id}" for id in ("1", "2", "3")}
    assert (result.outcome, named(result)) == (Outcome.DONE, expected)
    assert is_there(bench, f"{OTHER}:9")
    for phase in ("intent", "outcome"):
        ((told,),) = (body["jobs"] for body in bodies(phase))
        assert {f"{one['change']} {one['queue']}#{one['job']}" for one in told["affected"]} == expected, phase
        assert told["affected_total"] == 3, phase
    (fate,) = book.entry(1).jobs
    assert fate.affected_total == 3
    assert bodies("intent")[0]["options"] == {"children": True}


def test_children_of_other_queues_go_only_when_that_is_said_and_it_is_audited(bench: Bench, parent: str) -> None:
    result = remove(bench, "p", children=True, other_queues=True)
    assert f"removed main/{OTHER}#9" in named(result)
    assert not bench.client.exists(f"{OTHER}:9")
    assert bodies("intent")[0]["options"] == {"children": True, "other_queues": True}


def test_of_very_many_the_first_are_listed_and_all_are_counted(bench: Bench) -> None:
    key = job(bench.client, BASE, "p")
    for number in range(30):
        child_of(bench.client, key, BASE, f"c{number}")
    result = remove(bench, "p", children=True)
    assert len(result.affected) == 30
    told = result.as_json()
    assert (len(told["affected"]), told["affected_total"]) == (AFFECTED_LISTED, 30)
    assert (len(bodies("outcome")[0]["jobs"][0]["affected"]), book.entry(1).jobs[0].affected_total) == (20, 30)


def test_a_preview_says_what_would_happen_to_others(bench: Bench, parent: str) -> None:
    preview = runner.preview(bench.order(Action.REMOVE, "p", children=True))
    (judgement,) = preview.judgements
    assert judgement.is_allowed
    assert len(judgement.effects.affected) == 3
    assert "3 of its children and their children are removed with it" in preview.risk
    assert "1 of its children stay" in preview.risk


def test_a_parent_in_another_queue_is_asked_for(bench: Bench) -> None:
    parent = job(bench.client, OTHER, "p", "waiting-children")
    child_of(bench.client, parent, BASE, "1")
    bench.look()
    refused = remove(bench, "1")
    assert (refused.outcome, refused.why.endswith("This needs other_queues.")) == (Outcome.REFUSED, True)
    assert "bull:invoices p" in refused.why
    assert AuditEntry.objects.count() == 0
    done = remove(bench, "1", other_queues=True)
    assert named(done) == {f"released main/{OTHER}#p"}
    assert bench.client.lrange(f"{OTHER}:wait", 0, -1) == [b"p"]


def test_a_parent_of_the_same_queue_is_let_go_without_a_word_but_in_the_audit(bench: Bench) -> None:
    parent = job(bench.client, BASE, "p", "waiting-children")
    child_of(bench.client, parent, BASE, "1")
    assert named(remove(bench, "1", actor=OPERATOR)) == {f"released main/{BASE}#p"}


def test_planted_children_are_neither_told_nor_touched(bench: Bench) -> None:
    """Whoever may write to its own queue only names others' jobs there."""
    job(bench.client, BASE, "bait")
    victims = [job(bench.client, OTHER, id) for id in ("1", "2")]
    bench.client.sadd(f"{BASE}:bait:dependencies", *victims)
    result = remove(bench, "bait", children=True, other_queues=True)
    assert (result.outcome, result.affected) == (Outcome.DONE, ())
    assert is_there(bench, *victims)


def test_a_bulk_run_takes_children_along_when_that_is_said(bench: Bench, hands: Any, parent: str) -> None:
    order = bench.order(Action.REMOVE, "p", children=True)
    run = bulk_runs.order(order)
    hands.run(0)
    run.refresh_from_db()
    assert (run.status, run.done) == ("ended", 1)
    assert not bench.client.exists(f"{BASE}:1", f"{BASE}:2", f"{BASE}:3")
    assert is_there(bench, f"{OTHER}:9")


def test_the_shell_says_what_goes_with_it(bench: Bench, parent: str) -> None:
    out = StringIO()
    asked = ["--queue", BASE, "--job", "p", "--reason", "a test", "--children", "--other-queues"]
    call_command("act", "remove", *asked, "--dry-run", stdout=out)
    assert "  with it: bull:mail 1 removed" in out.getvalue()
    assert "  with it: bull:invoices 9 removed" in out.getvalue()
    assert is_there(bench, f"{BASE}:1", f"{OTHER}:9")
    out = StringIO()
    call_command("act", "remove", *asked, "--json", "--yes", stdout=out)
    (result,) = json.loads(out.getvalue())["results"]
    assert (result["outcome"], result["affected_total"]) == ("done", 4)
    assert not bench.client.exists(f"{BASE}:1", f"{OTHER}:9")
