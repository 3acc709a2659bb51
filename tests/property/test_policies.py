"""Policies: what is written is read back, the narrower wins in any order, and what is forbidden stays forbidden."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recovery.domain.identifiers import QueueRef
from recovery.domain.policies import describe, parser
from recovery.domain.policies.policy_layers import NEVER, LayerValues, PolicySource, PolicyValueOrigin, resolve_policy
from recovery.domain.policies.types import MAY_RELEASE, PolicyScanner

MAIL = QueueRef("main", "bull:mail")
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12).filter(str.strip)
_WORDS = st.text(st.sampled_from("abc xyz"), min_size=1, max_size=12).filter(str.strip)
_SECONDS = st.integers(0, 2_592_000_000).map(lambda ms: ms / 1000)


def _duty(scanner: PolicyScanner) -> st.SearchStrategy[dict[str, Any]]:
    said: dict[str, st.SearchStrategy[Any]] = {
        "mode": st.sampled_from(["dry-run", "enabled"]),
        "after": _SECONDS,
        "most": st.integers(1, 10_000),
    }
    return st.fixed_dictionaries({}, optional=said | ({"release": st.booleans()} if scanner in MAY_RELEASE else {}))


_BACKOFF = st.fixed_dictionaries(
    {},
    optional={
        "attempts": st.integers(0, 100),
        "first": st.integers(0, 1000),
        "factor": st.floats(1, 100),
        "longest": st.integers(1000, 2_592_000),
        "jitter": st.floats(0, 1),
    },
)
_NEVER = st.fixed_dictionaries(
    {}, optional={"names": st.lists(_NAMES, max_size=4), "signatures": st.lists(_WORDS, max_size=4)}
)
written = st.fixed_dictionaries(
    {},
    optional={
        **{scanner.field: _duty(scanner) for scanner in PolicyScanner},
        "backoff": st.dictionaries(_NAMES | st.just("*"), _BACKOFF, max_size=4),
        "never": _NEVER,
        "idempotency": st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    },
)
places = st.tuples(st.sampled_from(["", "main"]), st.sampled_from(["", "bull:mail"]))
edits = st.lists(st.tuples(st.sampled_from([PolicySource.FILE, PolicySource.PAGE]), places, written), max_size=5)


def layer(source: PolicySource, place: tuple[str, str], said: dict[str, Any]) -> LayerValues:
    values, problems = parser.read_policy(said)
    assert problems == ()
    return LayerValues(PolicyValueOrigin(source, *place), values)


@given(written)
def test_whatever_holds_can_be_written_and_read_again(said: dict[str, Any]) -> None:
    policy = resolve_policy([layer(PolicySource.FILE, ("", ""), said)], MAIL).policy
    values, problems = parser.read_policy(describe.policy_settings(policy))
    assert problems == ()
    assert resolve_policy([LayerValues(PolicyValueOrigin(PolicySource.FILE), values)], MAIL).policy == policy


@given(edits, st.randoms())
def test_the_narrower_wins_in_whatever_order_they_come(said: list[Any], random: Any) -> None:
    layers = list({(source, place): layer(source, place, one) for source, place, one in said}.values())
    found = resolve_policy(layers, MAIL)
    for path, origin in found.origins.items():
        saying = [one.origin for one in layers if path in one.values]
        wanted = min if path[0] == NEVER else max
        assert origin == wanted(saying, key=lambda one: one.rank)
    random.shuffle(layers)
    assert resolve_policy(layers, MAIL) == found


@given(edits, places, written)
def test_no_layer_allows_what_another_forbids(said: list[Any], place: tuple[str, str], more: dict[str, Any]) -> None:
    layers = [layer(source, where, one) for source, where, one in said]
    before = resolve_policy(layers, MAIL).policy.never
    after = resolve_policy([*layers, layer(PolicySource.PAGE, place, more)], MAIL).policy.never
    assert before.names <= after.names
    assert before.signatures <= after.signatures
