"""Manifests that are wrong, huge or written to harm: a clear error that names the line, soon and within bounds."""

from __future__ import annotations

import json
import time

import pytest

from recovery.domain.tuning.report import WORKERS_LIMIT
from recovery.errors import Illegible
from recovery.tuning.parsers.uploads import FILE_LIMIT, FILES_LIMIT
from recovery.tuning.parsers.yaml_nodes import DEPTH_LIMIT, EVENTS_LIMIT
from tests.support.tuning import KUBERNETES, judged

SECONDS = 20.0  # of a busy machine; the bound for one file is five
LAUGHS = "a0: &a0 {x: lol}\n" + "".join(
    f"a{level}: &a{level} {{{', '.join(f'k{place}: *a{level - 1}' for place in range(9))}}}\n" for level in range(1, 12)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], y{n}: 1}}\n" for n in range(1, 30))
CHAIN = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: *a{n - 1}}}\n" for n in range(1, 3000))
WIDE = "e: &e {" + ", ".join(f"A{n}: 1" for n in range(5000)) + "}\n"
MANY = "".join(f"  w{n}: {{environment: *e}}\n" for n in range(4000))


def refused(text: str | bytes) -> Illegible:
    started = time.monotonic()
    with pytest.raises(Illegible) as caught:
        judged({"k.yaml": text})
    assert time.monotonic() - started < SECONDS
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ("a: 1\nb: [1,\n  c: }\n", 3, "not YAML"),
        ("services:\n  a: !!python/object/apply:os.system [id]\n", 2, "a tag that constructs an object"),
        ("services:\n  a: !Ref b\n", 2, "a tag that constructs an object"),
        ("a: 1\nb: 2\na: 3\n", 3, "a duplicate key"),
        ("a: &a\n  b: *a\n", 2, "an alias without an anchor"),
        ("a: *gone\n", 1, "an alias without an anchor"),
        ("? [a, b]\n: 1\n", 1, "not a plain string"),
        ("A=1\nB=2\nwhat is this?\n", 3, "neither a comment nor NAME=value"),
        ("- 1\n- 2\n", 1, "neither an environment file"),
        ("just: words\n", 1, "neither an environment file"),
        ("services: 1\n---\nnever: known\n", 3, "neither an environment file"),
        ("\ttabs: 1\n", 1, "not YAML"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, line: int, why: str) -> None:
    error = refused(text)
    assert error.line == line
    assert why in error.reason


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a: 1\nb: \xff\xfe\n", 2),
        (b"a: 1\n\nb: \x00\n", 3),
        (b"\x7fELF\x02\x01", 1),
        (b"a: 1\nb: \x1b[31m\n", 2),
        (b"\x89PNG\r\n", 1),
    ],
)
def test_what_is_no_text_is_said_with_its_line(content: bytes, line: int) -> None:
    assert refused(content).line == line


def test_nesting_has_an_end() -> None:
    assert f"deeper than {DEPTH_LIMIT}" in refused("a: " + "[" * 100_000).reason
    assert f"deeper than {DEPTH_LIMIT}" in refused("".join(f"{' ' * n}a:\n" for n in range(1000))).reason


@pytest.mark.parametrize("text", [LAUGHS, MERGED, CHAIN], ids=["aliases", "merges", "a chain of merges"])
def test_a_bomb_of_aliases_costs_nothing_where_nobody_walks(text: str) -> None:
    started = time.monotonic()
    judged({"c.yaml": f"{text}services: {{}}\n"})
    assert time.monotonic() - started < SECONDS


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{MERGED}services: {{w: *a29}}\n", "expand to more than"),
        (f"{CHAIN}services: {{w: *a2999}}\n", "merges nested deeper"),
        (
            WIDE + "services:\n" + "".join(f"  w{n}: {{environment: *e}}\n" for n in range(4000)),
            "expand to more than",
        ),
    ],
    ids=["merges", "a chain of merges", "one large environment many times"],
)
def test_a_bomb_that_is_walked_over_is_refused(text: str, why: str) -> None:
    assert why in refused(text).reason


def test_a_flood_of_documents_is_refused() -> None:
    assert f"{EVENTS_LIMIT:,}" in refused("services: {}\n---\n" * 50_000).reason


def test_fifty_megabytes_are_refused_before_they_are_read() -> None:
    assert "too large" in refused(b"a: 1\n" * 10_000_000).reason
    assert "too large" in refused(b"a" * (FILE_LIMIT + 1)).reason


def test_many_files_are_refused() -> None:
    with pytest.raises(Illegible, match=f"more than {FILES_LIMIT} files"):
        judged({f"{n}.env": "A=1\n" for n in range(FILES_LIMIT + 1)})
    with pytest.raises(Illegible, match="too large"):
        judged({f"{n}.env": "A=1\n" + "#" * (FILE_LIMIT - 100) for n in range(3)})


def test_a_large_and_honest_file_is_read_in_time() -> None:
    """A megabyte of manifests."""
    text = "\n---\n".join([KUBERNETES] * (FILE_LIMIT // (len(KUBERNETES) + 5)))
    started = time.monotonic()
    found = judged({"k.yaml": text})
    assert len(found.outlooks) == WORKERS_LIMIT
    assert any("more kinds of workers were left out" in remark for remark in found.remarks)
    assert time.monotonic() - started < SECONDS


def test_an_error_repeats_no_secret() -> None:
    assert "hunter2" not in str(refused('{"password": "hunter2", "a": [}'))


def test_names_of_files_are_only_names() -> None:
    found = judged({"../../etc/<b>\n.env": "QUEUE_WORKER_LOCK_DURATION=90000\n"})
    assert [made.file for made in found.patches] == ["_b__.env"]


def test_json_is_read_as_it_is() -> None:
    text = json.dumps({"services": {"worker": {"image": "n8nio/n8n:1.123.5", "command": "worker"}}}, indent="\t")
    assert len(judged({"c.json": text}).outlooks) == 1


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "null\n"])
def test_nothing_is_no_error(text: str) -> None:
    assert judged({"k.yaml": text}).findings == ()


def test_a_text_of_another_encoding_is_read() -> None:
    assert judged({"k.env": "QUEUE_WORKER_LOCK_DURATION=45000\n".encode("utf-16")}).outlooks[0].setup.timing.lock == 45
