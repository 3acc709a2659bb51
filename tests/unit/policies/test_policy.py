"""What the scanners may do to a queue, and where each value comes from."""

from __future__ import annotations

from recovery.domain.auto_retry.backoff import Backoff, Backoffs
from recovery.domain.auto_retry.rules import NeverRetry
from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.policy_layers import (
    LayerValues,
    Path,
    PolicySource,
    PolicyValueOrigin,
    ResolvedPolicy,
    changes,
    resolve_policy,
    withhold_actions,
)
from recovery.domain.policies.types import NO_NOTE, Policy, PolicyScanner, ScannerMode, ScannerPolicy
from recovery.domain.time_units import MINUTE

MAIL = QueueRef("shop", "bull:mail")
NOW = 1_800_000_000_000
ARMED = ("auto_retry", "mode")


def layer(
    source: PolicySource, values: dict[Path, object], *, deployment: str = "", base: str = "", by: str = ""
) -> LayerValues:
    return LayerValues(PolicyValueOrigin(source, deployment, base, by, NOW if by else None), values)


def mode(*layers: LayerValues) -> tuple[ScannerMode, PolicyValueOrigin]:
    found = resolve_policy(layers, MAIL)
    return found.policy.auto_retry.mode, found.origin(*ARMED)


def test_by_default_only_the_stale_check_acts_on_queues_and_the_sweep_on_declared_tables() -> None:
    policy = resolve_policy((), MAIL).policy
    assert {scanner for scanner in PolicyScanner if policy.may_act(scanner)} == {
        PolicyScanner.STALE_CHECK,
        PolicyScanner.STARTUP_SWEEP,
    }
    assert policy.stale_check.after == 15 * MINUTE
    assert policy == Policy()


def test_auto_retrying_is_not_armed_without_a_note_why_jobs_may_run_twice() -> None:
    armed = Policy(auto_retry=ScannerPolicy(ScannerMode.ENABLED), idempotency="  ")
    assert not armed.may_act(PolicyScanner.AUTO_RETRY)
    assert armed.words(PolicyScanner.AUTO_RETRY)[0] == NO_NOTE
    assert Policy(auto_retry=ScannerPolicy(ScannerMode.ENABLED), idempotency="refused twice").may_act(
        PolicyScanner.AUTO_RETRY
    )
    assert Policy(orphan_watch=ScannerPolicy(ScannerMode.ENABLED)).may_act(PolicyScanner.ORPHAN_WATCH)


def test_the_page_wins_over_the_file_and_the_file_over_the_default() -> None:
    file = layer(PolicySource.FILE, {ARMED: ScannerMode.ENABLED})
    page = layer(PolicySource.PAGE, {ARMED: ScannerMode.DRY_RUN}, by="ann")
    assert mode() == (ScannerMode.DRY_RUN, PolicyValueOrigin())
    assert mode(file) == (ScannerMode.ENABLED, file.origin)
    assert mode(page, file) == (ScannerMode.DRY_RUN, page.origin)


def test_one_queue_wins_over_all_and_its_deployment_in_between() -> None:
    everywhere = layer(PolicySource.PAGE, {ARMED: ScannerMode.DRY_RUN})
    anywhere = layer(PolicySource.FILE, {ARMED: ScannerMode.ENABLED}, base="bull:mail")
    here = layer(PolicySource.FILE, {ARMED: ScannerMode.DRY_RUN}, deployment="shop", base="bull:mail")
    assert mode(anywhere, everywhere) == (ScannerMode.ENABLED, anywhere.origin)
    assert mode(here, anywhere, everywhere) == (ScannerMode.DRY_RUN, here.origin)
    other = layer(PolicySource.PAGE, {ARMED: ScannerMode.ENABLED}, deployment="other", base="bull:mail")
    assert mode(other) == (ScannerMode.DRY_RUN, PolicyValueOrigin())


def test_each_value_is_merged_alone() -> None:
    file = layer(PolicySource.FILE, {("stale_check", "after"): 60_000, ("backoff", "mail"): Backoff(3)})
    page = layer(
        PolicySource.PAGE, {("stale_check", "most"): 7, ("backoff", "*"): Backoff(1), ("idempotency",): "safe"}
    )
    found = resolve_policy((file, page), MAIL)
    assert found.policy.stale_check == ScannerPolicy(ScannerMode.ENABLED, 60_000, 7)
    assert found.policy.backoffs == Backoffs(Backoff(1), {"mail": Backoff(3)})
    assert found.policy.idempotency == "safe"
    origins = [found.origin("stale_check", name).source for name in ("mode", "after", "most")]
    assert origins == [PolicySource.DEFAULT, PolicySource.FILE, PolicySource.PAGE]


def test_what_must_never_be_auto_retried_adds_up() -> None:
    file = layer(PolicySource.FILE, {("never", "names", "charge"): True})
    page = layer(
        PolicySource.PAGE, {("never", "names", "pay"): True, ("never", "names", "charge"): True}, base="bull:mail"
    )
    found = resolve_policy((file, page), MAIL)
    assert found.policy.never == NeverRetry(frozenset({"charge", "pay"}))
    assert found.origin("never", "names", "charge") == file.origin


def test_an_origin_says_where_and_by_whom() -> None:
    assert PolicyValueOrigin().words(NOW) == "by default"
    assert PolicyValueOrigin(PolicySource.FILE).words(NOW) == "in the file, for all queues"
    assert PolicyValueOrigin(PolicySource.FILE, "shop").words(NOW) == "in the file, for all queues of shop"
    edited = PolicyValueOrigin(PolicySource.PAGE, "shop", "bull:mail", "ann", NOW - 4 * MINUTE)
    assert edited.words(NOW) == "edited by ann 4 min ago, for bull:mail"
    assert PolicyValueOrigin(PolicySource.PAGE).words(NOW) == "edited by an unknown user, for all queues"


def test_a_policy_says_in_words_what_it_allows() -> None:
    policy = Policy(never=NeverRetry(frozenset({"charge"}), frozenset({"card declined"})))
    assert policy.words(PolicyScanner.STALE_CHECK) == ("Enabled after 15 min, at most 500 jobs per run.",)
    assert policy.words(PolicyScanner.AUTO_RETRY) == (
        "Dry run, at most 100 jobs per run.",
        "All: 5 auto-retries, the first after 1.0 s, then growing by factor 2, at most 6 h.",
        "Never: unrecoverable errors and cancelled jobs.",
        "Never jobs named charge.",
        "Never after “card declined”.",
    )


def test_a_duty_says_that_it_releases_locks_or_would() -> None:
    assert ScannerPolicy(ScannerMode.ENABLED, release=True).words.endswith("Releases locks whose worker is gone.")
    assert ScannerPolicy(release=True).words.endswith("Would release locks whose worker is gone.")


def test_what_is_withheld_observes_whatever_was_armed() -> None:
    armed = resolve_policy(
        [layer(PolicySource.FILE, {("orphan_watch", "mode"): ScannerMode.ENABLED, ("orphan_watch", "release"): True})],
        MAIL,
    )
    assert armed.policy.orphan_watch.release
    why = PolicyValueOrigin(PolicySource.PAGE, base="bull:mail")
    found = withhold_actions(armed, why, "It cannot be read.")
    assert not any(found.policy.may_act(scanner) or found.policy.duty(scanner).release for scanner in PolicyScanner)
    assert (found.withheld, found.origin("stale_check", "mode")) == (("It cannot be read.",), why)
    assert found.policy.stale_check.after == 15 * MINUTE


def test_the_sentence_of_a_scanner_names_who_armed_it() -> None:
    found = resolve_policy([layer(PolicySource.PAGE, {ARMED: ScannerMode.ENABLED}, by="ann")], MAIL)
    assert found.sentence(PolicyScanner.AUTO_RETRY, NOW) == f"{NO_NOTE[:-1]} (edited by ann 0 s ago, for all queues)."
    assert found.sentence(PolicyScanner.STALE_CHECK, NOW).endswith("(by default).")


def test_an_edit_is_told_for_the_audit() -> None:
    before = Policy(backoffs=Backoffs(by_name={"mail": Backoff(3)}), never=NeverRetry(frozenset({"pay"})))
    after = Policy(
        orphan_watch=ScannerPolicy(ScannerMode.ENABLED, most=500),
        never=NeverRetry(signatures=frozenset({"x"})),
        idempotency="safe",
    )
    assert changes(before, before) == ()
    assert changes(before, after) == (
        "orphan-watch: Dry run, at most 500 jobs per run. → Enabled, at most 500 jobs per run.",
        "backoff mail: 3 auto-retries, the first after 1.0 s, then growing by factor 2, at most 6 h. → nothing",
        "never name pay: forbidden → nothing",
        "never signature x: nothing → forbidden",
        "idempotency: nothing → “safe”",
    )


def test_nothing_resolved_is_the_default() -> None:
    assert ResolvedPolicy() == resolve_policy((), MAIL)
