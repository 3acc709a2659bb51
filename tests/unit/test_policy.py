"""What the scanners may do to a queue, and where each value comes from."""

from __future__ import annotations

from recovery.domain.ages import MINUTE
from recovery.domain.backoff import Backoff, Backoffs
from recovery.domain.policies import Layer, Origin, Path, Resolved, Source, changes, resolved, withheld
from recovery.domain.policy import NO_NOTE, Duty, Mode, Policy, Scanner
from recovery.domain.refs import QueueRef
from recovery.domain.retry import Never

MAIL = QueueRef("shop", "bull:mail")
NOW = 1_800_000_000_000
ARMED = ("auto_retry", "mode")


def layer(source: Source, values: dict[Path, object], *, deployment: str = "", base: str = "", by: str = "") -> Layer:
    return Layer(Origin(source, deployment, base, by, NOW if by else None), values)


def mode(*layers: Layer) -> tuple[Mode, Origin]:
    found = resolved(layers, MAIL)
    return found.policy.auto_retry.mode, found.origin(*ARMED)


def test_by_default_only_the_stale_check_acts_on_queues_and_the_sweep_on_declared_tables() -> None:
    policy = resolved((), MAIL).policy
    assert {scanner for scanner in Scanner if policy.may_act(scanner)} == {Scanner.STALE_CHECK, Scanner.STARTUP_SWEEP}
    assert policy.stale_check.after == 15 * MINUTE
    assert policy == Policy()


def test_relaunching_is_not_armed_without_a_note_why_jobs_may_run_twice() -> None:
    armed = Policy(auto_retry=Duty(Mode.ACT), idempotency="  ")
    assert not armed.may_act(Scanner.AUTO_RETRY)
    assert armed.words(Scanner.AUTO_RETRY)[0] == NO_NOTE
    assert Policy(auto_retry=Duty(Mode.ACT), idempotency="refused twice").may_act(Scanner.AUTO_RETRY)
    assert Policy(orphan_watch=Duty(Mode.ACT)).may_act(Scanner.ORPHAN_WATCH)


def test_the_page_wins_over_the_file_and_the_file_over_the_default() -> None:
    file = layer(Source.FILE, {ARMED: Mode.ACT})
    page = layer(Source.PAGE, {ARMED: Mode.OBSERVE}, by="ann")
    assert mode() == (Mode.OBSERVE, Origin())
    assert mode(file) == (Mode.ACT, file.origin)
    assert mode(page, file) == (Mode.OBSERVE, page.origin)


def test_one_queue_wins_over_all_and_its_deployment_in_between() -> None:
    everywhere = layer(Source.PAGE, {ARMED: Mode.OBSERVE})
    anywhere = layer(Source.FILE, {ARMED: Mode.ACT}, base="bull:mail")
    here = layer(Source.FILE, {ARMED: Mode.OBSERVE}, deployment="shop", base="bull:mail")
    assert mode(anywhere, everywhere) == (Mode.ACT, anywhere.origin)
    assert mode(here, anywhere, everywhere) == (Mode.OBSERVE, here.origin)
    other = layer(Source.PAGE, {ARMED: Mode.ACT}, deployment="other", base="bull:mail")
    assert mode(other) == (Mode.OBSERVE, Origin())


def test_each_value_is_merged_alone() -> None:
    file = layer(Source.FILE, {("stale_check", "after"): 60_000, ("backoff", "mail"): Backoff(3)})
    page = layer(Source.PAGE, {("stale_check", "most"): 7, ("backoff", "*"): Backoff(1), ("idempotency",): "safe"})
    found = resolved((file, page), MAIL)
    assert found.policy.stale_check == Duty(Mode.ACT, 60_000, 7)
    assert found.policy.backoffs == Backoffs(Backoff(1), {"mail": Backoff(3)})
    assert found.policy.idempotency == "safe"
    origins = [found.origin("stale_check", name).source for name in ("mode", "after", "most")]
    assert origins == [Source.DEFAULT, Source.FILE, Source.PAGE]


def test_what_must_never_be_relaunched_adds_up() -> None:
    file = layer(Source.FILE, {("never", "names", "charge"): True})
    page = layer(Source.PAGE, {("never", "names", "pay"): True, ("never", "names", "charge"): True}, base="bull:mail")
    found = resolved((file, page), MAIL)
    assert found.policy.never == Never(frozenset({"charge", "pay"}))
    assert found.origin("never", "names", "charge") == file.origin


def test_an_origin_says_where_and_by_whom() -> None:
    assert Origin().words(NOW) == "by default"
    assert Origin(Source.FILE).words(NOW) == "in the file, for all queues"
    assert Origin(Source.FILE, "shop").words(NOW) == "in the file, for all queues of shop"
    edited = Origin(Source.PAGE, "shop", "bull:mail", "ann", NOW - 4 * MINUTE)
    assert edited.words(NOW) == "edited by ann 4 min ago, for bull:mail"
    assert Origin(Source.PAGE).words(NOW) == "edited by an unknown user, for all queues"


def test_a_policy_says_in_words_what_it_allows() -> None:
    policy = Policy(never=Never(frozenset({"charge"}), frozenset({"card declined"})))
    assert policy.words(Scanner.STALE_CHECK) == ("Enabled after 15 min, at most 500 jobs per run.",)
    assert policy.words(Scanner.AUTO_RETRY) == (
        "Dry run, at most 100 jobs per run.",
        "All: 5 auto-retries, the first after 1.0 s, then growing by factor 2, at most 6 h.",
        "Never: unrecoverable errors and cancelled jobs.",
        "Never jobs named charge.",
        "Never after “card declined”.",
    )


def test_a_duty_says_that_it_releases_locks_or_would() -> None:
    assert Duty(Mode.ACT, release=True).words.endswith("Releases locks whose worker is gone.")
    assert Duty(release=True).words.endswith("Would release locks whose worker is gone.")


def test_what_is_withheld_observes_whatever_was_armed() -> None:
    armed = resolved(
        [layer(Source.FILE, {("orphan_watch", "mode"): Mode.ACT, ("orphan_watch", "release"): True})], MAIL
    )
    assert armed.policy.orphan_watch.release
    why = Origin(Source.PAGE, base="bull:mail")
    found = withheld(armed, why, "It cannot be read.")
    assert not any(found.policy.may_act(scanner) or found.policy.duty(scanner).release for scanner in Scanner)
    assert (found.withheld, found.origin("stale_check", "mode")) == (("It cannot be read.",), why)
    assert found.policy.stale_check.after == 15 * MINUTE


def test_the_sentence_of_a_scanner_names_who_armed_it() -> None:
    found = resolved([layer(Source.PAGE, {ARMED: Mode.ACT}, by="ann")], MAIL)
    assert found.sentence(Scanner.AUTO_RETRY, NOW) == f"{NO_NOTE[:-1]} (edited by ann 0 s ago, for all queues)."
    assert found.sentence(Scanner.STALE_CHECK, NOW).endswith("(by default).")


def test_an_edit_is_told_for_the_audit() -> None:
    before = Policy(backoffs=Backoffs(by_name={"mail": Backoff(3)}), never=Never(frozenset({"pay"})))
    after = Policy(orphan_watch=Duty(Mode.ACT, most=500), never=Never(signatures=frozenset({"x"})), idempotency="safe")
    assert changes(before, before) == ()
    assert changes(before, after) == (
        "orphan-watch: Dry run, at most 500 jobs per run. → Enabled, at most 500 jobs per run.",
        "backoff mail: 3 auto-retries, the first after 1.0 s, then growing by factor 2, at most 6 h. → nothing",
        "never name pay: forbidden → nothing",
        "never signature x: nothing → forbidden",
        "idempotency: nothing → “safe”",
    )


def test_nothing_resolved_is_the_default() -> None:
    assert Resolved() == resolved((), MAIL)
