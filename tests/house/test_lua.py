"""Every script that changes a queue says what it takes, what it answers, what it costs and for whom it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recovery.connections.scripts import script

BACKENDS = Path(__file__).parents[2] / "recovery" / "backends"
SCRIPTS = sorted(BACKENDS.glob("*/lua/write/*.lua"))
PARTS = sorted(BACKENDS.glob("*/lua/write/parts/*.lua"))
# It knows no queue and no epoch: what a scanner or a leader is does not concern it.
LEDGER = BACKENDS.parent / "once" / "lua" / "write"
HEADINGS = ("KEYS", "ARGV", "Returns", "Cost", "Versions")
_HEAD = re.compile(r"\A(?:--\[\[\n.*?\n\]\]|(?:--[^\n]*\n)+)", re.DOTALL)
_COMMENT = re.compile(r"--\[\[.*?\]\]|--[^\n]*", re.DOTALL)
_INCLUDE = re.compile(r"^--- include ([a-z-]+)$", re.MULTILINE)


def _named(path: Path) -> str:
    return str(path.relative_to(BACKENDS.parent))


def test_there_are_scripts_of_both_libraries_and_what_both_share() -> None:
    assert {path.parents[2].name for path in SCRIPTS} == {"bull", "bullmq", "shared"}


@pytest.mark.parametrize("path", SCRIPTS, ids=_named)
def test_the_fence_comes_before_all_else(path: Path) -> None:
    """Nothing may be written, nor an argument counted, before it is known that the caller still leads."""
    assert _asked(path)[0] == "fence"
    code = _COMMENT.sub("", script(path).text.decode()).split()
    assert code[:3] == ["do", "local", "WEEK"]


@pytest.mark.parametrize("path", [*SCRIPTS, LEDGER / "once.lua"], ids=_named)
def test_a_script_has_its_head(path: Path) -> None:
    head = _HEAD.match(path.read_text("utf-8"))
    assert head, "it does not open with a comment"
    lacking = [word for word in HEADINGS if not re.search(rf"^[\s-]*{word}\b", head[0], re.MULTILINE | re.IGNORECASE)]
    assert lacking == []


@pytest.mark.parametrize("path", SCRIPTS, ids=_named)
def test_its_name_is_a_verb_and_an_object(path: Path) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)+", path.stem)


@pytest.mark.parametrize("path", [*PARTS, *LEDGER.glob("parts/*.lua")], ids=_named)
def test_a_part_says_what_it_is_for(path: Path) -> None:
    assert re.search(r"^-- [A-Z`]", path.read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("path", [*SCRIPTS, LEDGER / "once.lua"], ids=_named)
def test_every_part_that_it_asks_for_is_there(path: Path) -> None:
    whole = script(path).text.decode()
    assert _INCLUDE.findall(whole) == []


def test_no_part_is_left_over() -> None:
    asked = {(path.parents[1].parent.name, name) for path in [*SCRIPTS, *PARTS] for name in _asked(path)}
    wanted = {name for _, name in asked}
    assert [_named(path) for path in PARTS if path.stem not in wanted] == []


def _asked(path: Path) -> list[str]:
    return _INCLUDE.findall(path.read_text("utf-8"))


@pytest.mark.parametrize("path", [*SCRIPTS, *PARTS], ids=_named)
def test_no_payload_is_decoded_or_written_back(path: Path) -> None:
    """JSON of a job stays text: a round trip through Lua changes numbers and empty lists. Our own arguments may be."""
    code = _COMMENT.sub("", path.read_text("utf-8"))
    assert "cjson.encode" not in code
    assert set(re.findall(r"cjson\.decode\((.*?)\)", code)) <= {"ARGV[1]"}


def test_nothing_is_written_but_by_a_script() -> None:
    """Only a script meets the fence. A wish that is published changes nothing."""
    writes = r"\(b?\"(SET|DEL|UNLINK|EXPIRE|RENAME|RESTORE|[HLRSXZ](?:SET|DEL|ADD|REM|PUSH|POP|TRIM|INCRBY|INSERT))\""
    code = {_named(path): path.read_text("utf-8") for path in BACKENDS.rglob("*.py")}
    assert {name: found for name, text in code.items() if (found := re.findall(writes, text))} == {}


@pytest.mark.parametrize("path", [*SCRIPTS, *PARTS, *LEDGER.rglob("*.lua")], ids=_named)
def test_no_script_walks_the_key_space(path: Path) -> None:
    code = _COMMENT.sub("", path.read_text("utf-8"))
    assert not re.search(r'"(KEYS|SCAN|FLUSHALL|FLUSHDB)"', code)
