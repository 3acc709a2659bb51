from __future__ import annotations

import json

import pytest

from dashboard.base.json_tree import DEPTH_LIMIT, NODE_LIMIT, OPEN_DEPTH, PRETTY_LIMIT, JsonTreeNode, tree


def balanced(nodes: tuple[JsonTreeNode, ...]) -> bool:
    depth = 0
    for node in nodes:
        depth += (node.step == "open") - (node.step == "close")
        assert depth >= 0
    return depth == 0


def test_a_value_becomes_openings_leaves_and_closings() -> None:
    nodes = tree('{"to": "ada", "n": 1, "ok": true, "none": null, "list": [2], "empty": {}}').nodes
    assert [(node.step, node.key, node.text) for node in nodes] == [
        ("open", "", "{6}"),
        ("leaf", "to", '"ada"'),
        ("leaf", "n", "1"),
        ("leaf", "ok", "true"),
        ("leaf", "none", "null"),
        ("open", "list", "[1]"),
        ("leaf", "0", "2"),
        ("close", "", ""),
        ("leaf", "empty", "{}"),
        ("close", "", ""),
    ]


def test_it_is_folded_below_the_third_level() -> None:
    nested = json.dumps({"a": {"b": {"c": {"d": 1}}}})
    opened = [node.is_open for node in tree(nested).nodes if node.step == "open"]
    assert opened == [True] * OPEN_DEPTH + [False]


@pytest.mark.parametrize("text", ["", "plain", '"a string"', "12", "{", '{"a": 1', "[" * 100_000, "\x00\x01"])
def test_what_is_no_json_stands_as_text(text: str) -> None:
    drawn = tree(text)
    assert not drawn.is_tree
    assert drawn.pretty == text


def test_a_cut_payload_stands_as_text() -> None:
    assert not tree('{"a": 1}', is_cut=True).is_tree


def test_a_large_value_is_bounded_and_closed() -> None:
    drawn = tree(json.dumps([[number] for number in range(NODE_LIMIT)]))
    assert len(drawn.nodes) < NODE_LIMIT + 10
    assert balanced(drawn.nodes)
    assert any(node.step == "rest" for node in drawn.nodes)


def test_a_deep_value_is_bounded_and_closed() -> None:
    drawn = tree("[" * 300 + "]" * 300)
    assert balanced(drawn.nodes)
    assert sum(node.step == "open" for node in drawn.nodes) == DEPTH_LIMIT


def test_half_a_surrogate_pair_can_be_sent() -> None:
    drawn = tree('{"a\\ud800": "\\udfff"}')
    for node in drawn.nodes:
        (node.key + node.text).encode("utf-8")
    drawn.pretty.encode("utf-8")


def test_what_indenting_would_blow_up_stands_as_it_came() -> None:
    text = "[" * 900 + ",".join(["1"] * 30_000) + "]" * 900
    assert tree(text).pretty == text
    short = json.dumps([1] * 1000)
    assert len(short) < len(tree(short).pretty) <= PRETTY_LIMIT
