"""A queue whose workers take, renew, finish, fail, die and come back late, while operators act on what they saw.

Both sides are real: the library's own scripts, and ours behind the one door. After every step each job stands in
exactly one place, no counter has fallen, and the audit knows of exactly the changes that were seen in the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, JobResult, Outcome
from recovery.reads.audit.queries import verify
from recovery.stores import registry
from recovery.stores.state.shared_read import windows
from tests.property.watched_queue import LATER_MS, Picture, WatchedQueue, changed
from tests.support.hands import Hand
from tests.support.processes.fleet import Library
from tests.support.stores.stores import Store
from tests.support.stuck.watching import config_of

JOBS = 6  # about so many, so that workers and operators meet on the same one
VIEWS = 8  # that operators remember, and act on later
EXAMPLES, STEPS = 15, 50
LONG_EXAMPLES, LONG_STEPS = 400, 80
ON_JOBS = (Action.REQUEUE, Action.FAIL, Action.RELEASE, Action.RETRY, Action.PROMOTE, Action.REMOVE)
# Where jobs stand that an act is for. All but a release want one that nobody holds.
FITTING = {
    Action.REQUEUE: ("active",),
    Action.FAIL: ("active",),
    Action.RELEASE: ("active",),
    Action.RETRY: ("failed", "completed"),
    Action.PROMOTE: ("delayed",),
}
# A zombie of Bull writes why it failed into a job that is not its own any more (the library does not fence it).
UNFENCED = frozenset({"bull4"})

some = st.integers(0, 99)  # which of those there are
T = TypeVar("T")


def pick(of: Sequence[T], which: int) -> T:
    return of[which % len(of)]


class Held(NamedTuple):
    """What a worker believes to hold. Whether it still does, the store knows."""

    hand: Hand
    job: str
    token: str


class QueueMachine(RuleBasedStateMachine):
    library: Library
    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.world = WatchedQueue(self.library, self.store)
        self.held: list[Held] = []
        self.views: list[ExpectedJob] = []
        self.removed: dict[str, int] = {}  # job → the audit's number
        self.completions: Counter[str] = Counter()  # that the library accepted from a worker
        self.lives: Counter[str] = Counter()  # how often it was set to work by an operator who retried it
        self.mutations = 0
        self.pictures: dict[str, Picture] = {}
        self.added = 0
        self.is_paused = False

    @initialize()
    def has_jobs(self) -> None:
        for _ in range(JOBS // 2):
            self.add(1, urgent=False, later=False)

    # -- workers

    @precondition(lambda self: len(self.world.jobs) - len(self.removed) < JOBS)
    @rule(attempts=st.integers(1, 2), urgent=st.booleans(), later=st.booleans())
    def add(self, attempts: int, *, urgent: bool, later: bool) -> None:
        options = {"attempts": attempts} | ({"priority": 3} if urgent else {}) | ({"delay": LATER_MS} if later else {})
        self.world.add(**options)

    @rule(which=some, dies=st.booleans())
    def take(self, which: int, *, dies: bool) -> None:
        hand = pick(self.world.hands, which)
        if job := hand.take():
            # A worker that takes a job again knows it as the new one.
            self.held = [one for one in self.held if (one.hand, one.job) != (hand, job)]
            self.held.append(Held(hand, job, hand.token(job)))
            if dies:
                self.world.expire(job)

    @precondition(lambda self: self.held)
    @rule(step=st.sampled_from(("renew", "finish", "fail", "die", "die")), which=some)
    def work(self, step: str, which: int) -> None:
        """Of a holder, or of one that only believes to be one."""
        held = pick(self.held, which)
        match step:
            case "renew":
                assert held.hand.renew(held.job) == self._is_holder(held)
            case "finish":
                self._ends(held, held.hand.finish(held.job), is_completed=True)
            case "fail" if self._is_holder(held) or self.library.name not in UNFENCED:
                self._ends(held, held.hand.fail(held.job), is_completed=False)
            case "die" if self._is_holder(held):
                self.world.expire(held.job)  # it may come back late: it does not know

    @rule(which=some)
    def sweep(self, which: int) -> None:
        self.world.sweep(pick(self.world.hands, which))

    # -- operators

    @rule(which=some)
    def look(self, which: int) -> None:
        """What is seen now may be acted on much later; the watch looks as well."""
        self.views = [self.world.seen(pick(self.world.jobs, which)), *self.views][:VIEWS]
        self.world.was_looked_at()

    @rule(act=st.sampled_from(tuple(FITTING)), which=some, one=st.booleans(), other=st.booleans(), is_old=st.booleans())
    def act_where_it_fits(self, act: Action, which: int, *, one: bool, other: bool, is_old: bool) -> None:
        """Perhaps as the job was seen when it was in such a state before.

        Released too are locks of holders that may well be alive, and know nothing of it.
        """
        self._bring_about(act, which)
        self.world.was_looked_at()
        if fitting := self._among(*FITTING[act], is_locked=act is Action.RELEASE):
            options = ActionOptions(counts_as_stall=one, directly=other, requeue=one, force=act is Action.RELEASE)
            seen = self.world.seen(pick(fitting, which))
            before = [view for view in self.views if (view.id, view.state) == (seen.id, seen.state)]
            self.views = [seen, *self.views][:VIEWS]
            self._act(act, before[-1] if is_old and before else seen, options)

    @rule(act=st.sampled_from(ON_JOBS), which=some, is_old=st.booleans(), force=st.booleans())
    def act_on_any(self, act: Action, which: int, *, is_old: bool, force: bool) -> None:
        """Whether it fits or not, and whether it was seen now or some steps ago."""
        seen = pick(self.views, which) if is_old and self.views else self.world.seen(pick(self.world.jobs, which))
        self._act(act, seen, ActionOptions(requeue=force, force=force))

    @rule(act=st.sampled_from((Action.PAUSE, Action.RESUME, Action.RESUME)))
    def turn(self, act: Action) -> None:
        before = self.world.pictures()
        result = self.world.turn(act)
        wanted = act is Action.PAUSE
        assert result.outcome is (Outcome.UNCHANGED if wanted == self.is_paused else Outcome.DONE), result
        self.is_paused = wanted
        self.mutations += result.outcome is Outcome.DONE
        moved = [self.world.pictures()[job].places for job in changed(before, self.world.pictures())]
        assert set(moved) <= {("wait",), ("paused",)}

    @precondition(lambda self: self.removed)
    @rule(which=some)
    def restore(self, which: int) -> None:
        job = pick(sorted(self.removed), which)
        result = self._watched(job, lambda: self.world.restore(self.removed[job]))
        assert result.outcome is Outcome.DONE, result
        del self.removed[job]

    # -- what holds after every step

    @invariant()
    def every_job_is_in_exactly_one_place(self) -> None:
        wrong = {
            job: picture.places
            for job, picture in self.world.pictures().items()
            if len(picture.places) != (0 if job in self.removed else 1)
        }
        assert wrong == {}

    @invariant()
    def no_counter_falls(self) -> None:
        pictures, added = self.world.pictures(), self.world.added()
        for job, picture in pictures.items():
            if job in self.pictures and job not in self.removed:
                before = self.pictures[job].counters
                assert all(now >= before[name] for name, now in picture.counters.items()), (job, before, picture)
        assert added >= self.added
        self.pictures |= {job: picture for job, picture in pictures.items() if job not in self.removed}
        self.added = added

    @invariant()
    def no_job_is_completed_twice(self) -> None:
        assert {job: times for job, times in self.completions.items() if times > 1 + self.lives[job]} == {}

    @invariant()
    def the_audit_knows_of_every_change(self) -> None:
        assert self.world.audited() == self.mutations

    def teardown(self) -> None:
        """The library finishes all that is left, and lets no late worker finish anything a second time."""
        try:
            if self.is_paused:
                self.turn(Action.RESUME)
            self._finish_everything()
            for held in self.held:
                assert held.hand.finish(held.job) != ""
            left = {picture.places for job, picture in self.world.pictures().items() if job not in self.removed}
            assert left <= {("completed",), ("failed",), ("delayed",)}
            self.no_job_is_completed_twice()
            self.the_audit_knows_of_every_change()
            assert verify().is_sound
        finally:
            Hand.close_all(self.world.queue)

    # -- how it is done

    def _bring_about(self, act: Action, which: int) -> None:
        """What the act is for."""
        if act is Action.PROMOTE:
            self.world.add(delay=LATER_MS, **({"priority": 3} if which % 2 else {}))
            return
        self.take(which, dies=act in (Action.REQUEUE, Action.FAIL))
        if act is Action.RETRY and self.held and self._is_holder(self.held[-1]):
            held = self.held[-1]
            self._ends(held, held.hand.fail(held.job), is_completed=False)

    def _finish_everything(self) -> None:
        for held in [held for held in self.held if self._is_holder(held)]:
            self._ends(held, held.hand.finish(held.job), is_completed=True)
        hand = self.world.hands[0]
        for _ in range(2):  # the first pass marks, the second recovers
            self.world.sweep(hand)
        while job := hand.take():
            self._ends(Held(hand, job, hand.token(job)), hand.finish(job), is_completed=True)

    def _act(self, act: Action, seen: ExpectedJob, options: ActionOptions) -> None:
        held, fresh = self.world.pictures()[seen.id].token, self.world.seen(seen.id)
        result = self._watched(seen.id, lambda: self.world.act(act, seen, options))
        if result.outcome is not Outcome.DONE:
            return
        assert not held or act is Action.RELEASE, f"{act} was done to a job that somebody holds"
        assert replace(fresh, token=seen.token) == seen, f"{act} was done to a job that was not as it was seen"
        if act is Action.REMOVE:
            self.removed[seen.id] = result.audit or 0
        self.lives[seen.id] += act is Action.RETRY

    def _watched(self, job: str, act: Callable[[], JobResult]) -> JobResult:
        """What is said to be done is seen in the store, to this job alone; what is not done leaves no trace."""
        before = self.world.pictures()
        result = act()
        changes = changed(before, self.world.pictures())
        assert changes == ({job} if result.outcome is Outcome.DONE else set()), result
        self.mutations += len(changes)
        return result

    def _ends(self, held: Held, refusal: str, *, is_completed: bool) -> None:
        """The library accepts the end of a job from its holder, and from nobody else."""
        if refusal:
            return
        self.completions[held.job] += is_completed
        self.held = [one for one in self.held if one != held]

    def _is_holder(self, held: Held) -> bool:
        return self.world.pictures()[held.job].token == held.token

    def _among(self, *names: str, is_locked: bool = False) -> list[str]:
        """The jobs that are in one of these places."""
        pictures = self.world.pictures().items()
        return [job for job, at in pictures if set(at.places) & set(names) and bool(at.token) == is_locked]


@pytest.fixture
def site(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """The engine, configured for this store."""
    config_of(tmp_path, state_store, {"main": valkey})
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
    registry.reset()
    windows.forget()
    yield valkey
    registry.reset()


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize(
    ("examples", "steps"), [(EXAMPLES, STEPS), pytest.param(LONG_EXAMPLES, LONG_STEPS, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("library", ["bull4", "bullmq5", "bullmq6"], indirect=True)
def test_nothing_is_lost_or_done_twice_whatever_happens(
    site: Store, library: Library, examples: int, steps: int
) -> None:
    machine = type("Machine", (QueueMachine,), {"library": library, "store": site})
    is_short = examples == EXAMPLES
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=is_short,  # the same every time; the long round looks for news
        phases=[phase for phase in Phase if phase is not Phase.shrink or not is_short],  # shrinking takes minutes
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=chosen)
