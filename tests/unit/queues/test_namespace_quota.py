"""Who has to go when there are more names than are kept."""

from __future__ import annotations

from recovery.scanners.discovery.namespace_quota import NamespaceQuota, namespace


def test_a_namespace_is_the_first_two_parts() -> None:
    assert [namespace(base) for base in ("bull:mail", "bull:evil:1", "bull:evil:2:x", "plain")] == [
        *("bull:mail", "bull:evil", "bull:evil", "plain"),
    ]


def test_as_long_as_there_is_room_nobody_goes() -> None:
    share = NamespaceQuota(3)
    assert [share.add(name) for name in ("bull:evil:1", "bull:evil:2", "bull:mail")] == [None] * 3


def test_the_newest_of_the_largest_namespace_goes_for_one_of_a_smaller_one() -> None:
    share = NamespaceQuota(3, ["bull:evil:1", "bull:evil:2", "bull:evil:3"])
    assert share.add("bull:mail") == "bull:evil:3"
    assert share.add("bull:pay") == "bull:evil:2"
    assert share.add("bull:late") == "bull:late", "each of the three has one by now"


def test_one_of_the_largest_namespace_goes_itself() -> None:
    share = NamespaceQuota(3, ["bull:evil:1", "bull:evil:2", "bull:mail"])
    assert share.add("bull:evil:3") == "bull:evil:3"


def test_what_is_taken_out_makes_room() -> None:
    share = NamespaceQuota(2, ["bull:evil:1", "bull:evil:2"])
    assert share.take() == "bull:evil:2"
    assert share.add("bull:evil:3") is None
    assert [share.take(), share.take(), share.take()] == ["bull:evil:3", "bull:evil:1", None]


def test_twenty_thousand_names_are_soon_through() -> None:
    share = NamespaceQuota(10_000)
    for number in range(10_000):
        share.add(f"bull:evil:{number}")
    gone = {share.add(f"bull:q{number}") for number in range(5_000)}
    assert len(gone) == 5_000
    assert all(name and name.startswith("bull:evil:") for name in gone)
    assert {share.add(f"bull:evil:x{number}") for number in range(5_000)} == {
        f"bull:evil:x{number}" for number in range(5_000)
    }
