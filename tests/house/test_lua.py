"""Every script that changes a queue says what it takes, what it answers, what it costs and for whom it is."""

from __future__ import annotations

import re
from pathlib import Path

from recovery.stores.redis.scripts import script

BACKENDS = Path(__file__).parents[2] / "recovery" / "backends"
# It knows no queue and no epoch: what a scanner or a leader is does not concern it.
LEDGER = BACKENDS.parent / "idempotency" / "lua" / "write"
SCRIPTS = sorted(BACKENDS.glob("*/lua/write/*.lua"))
READING = sorted([*BACKENDS.glob("*/lua/read/*.lua"), *BACKENDS.parent.glob("connections/lua/read/*.lua")])
PARTS = sorted(BACKENDS.glob("*/lua/write/parts/*.lua"))
LEDGERS = sorted(LEDGER.glob("*.lua"))
TELLS = sorted(BACKENDS.glob("*/lua/tell/*.lua"))  # these touch no queue
LEDGER_PARTS = sorted(LEDGER.glob("parts/*.lua"))
HEADINGS = ("KEYS", "ARGV", "Returns", "Cost", "Versions")
_HEAD = re.compile(r"\A(?:--\[\[\n.*?\n\]\]|(?:--[^\n]*\n)+)", re.DOTALL)
_COMMENT = re.compile(r"--\[\[.*?\]\]|--[^\n]*", re.DOTALL)
_INCLUDE = re.compile(r"^--- include ([a-z-]+)$", re.MULTILINE)
_LIKE_INCLUDE = re.compile(r"^\s*-+\s*include\b.*$", re.MULTILINE | re.IGNORECASE)
_DECODED = re.compile(r"cjson\.decode\((.*?)\)")
_READS = {
    "HGETALL",
    "HKEYS",
    "HLEN",
    "ZSCORE",
    "LPOS",
    "LLEN",
    "LRANGE",
    "HMGET",
    "HSTRLEN",
    "HGET",
    "GETRANGE",
    "PTTL",
}
_WALK = re.compile(r"[\"'](KEYS|SCAN|FLUSHALL|FLUSHDB)[\"']", re.IGNORECASE)
_WRITE = re.compile(
    r"\(b?\"(SET|DEL|UNLINK|EXPIRE|RENAME|RESTORE|[HLRSXZ](?:SET|DEL|ADD|REM|PUSH|POP|TRIM|INCRBY|INSERT))\""
)


def named(path: Path) -> str:
    return str(path.relative_to(BACKENDS.parent))


def source(path: Path) -> str:
    return path.read_text("utf-8")


def code(path: Path) -> str:
    """Without its comments."""
    return _COMMENT.sub("", source(path))


def asked(path: Path) -> list[str]:
    """The parts that it asks for by itself."""
    return _INCLUDE.findall(source(path))


def library(path: Path) -> str:
    """The folder that holds its `lua`: bull, bullmq, shared or once."""
    return next(folder for folder in path.parents if folder.name == "lua").parent.name


def test_there_are_scripts_of_both_libraries_and_what_both_share() -> None:
    assert {library(path) for path in SCRIPTS} == {"bull", "bullmq", "redis_common"}
    assert [path.stem for path in LEDGERS] == ["idempotency"]
    assert PARTS
    assert LEDGER_PARTS


def test_the_fence_comes_before_all_else() -> None:
    """Nothing may be written, nor an argument counted, before it is known that the caller still leads."""
    violations = [named(path) for path in SCRIPTS if asked(path)[:1] != ["fence"] or not _opens_with_the_fence(path)]
    assert violations == []


def test_what_only_reads_calls_nothing_that_writes_and_so_needs_no_fence() -> None:
    assert READING
    violations = {named(path): found for path in READING if (found := _not_reads(code(path)))}
    assert violations == {}


def _not_reads(text: str) -> list[str]:
    """Each call has to name its command, and that one has to be known here."""
    calls = re.findall(r"\bp?call\b(?:\(\"([A-Z]+)\")?|(\bloadstring\b)", text)
    return [name or other or "call" for name, other in calls if name not in _READS]


def _opens_with_the_fence(path: Path) -> bool:
    whole = _COMMENT.sub("", script(path).text.decode())
    return whole.split()[:3] == ["do", "local", "WEEK"]


def test_a_script_has_its_head() -> None:
    lacking = {named(path): _lacking(path) for path in [*SCRIPTS, *READING, *LEDGERS, *TELLS]}
    violations = {name: headings for name, headings in lacking.items() if headings}
    assert violations == {}


def _lacking(path: Path) -> list[str]:
    head = _HEAD.match(source(path))
    text = head[0] if head else ""
    return [word for word in HEADINGS if not re.search(rf"^[\s-]*{word}\b", text, re.MULTILINE | re.IGNORECASE)]


def test_its_name_is_a_verb_and_an_object() -> None:
    violations = [named(path) for path in SCRIPTS if not re.fullmatch(r"[a-z]+(-[a-z]+)+", path.stem)]
    assert violations == []


def test_a_part_says_what_it_is_for() -> None:
    parts = [*PARTS, *LEDGER_PARTS]
    violations = [named(path) for path in parts if not re.search(r"^-- [A-Z`]", source(path), re.MULTILINE)]
    assert violations == []


def test_every_part_that_it_asks_for_is_there() -> None:
    """The loader puts each in; a line that is only like the one it knows would be left as a comment."""
    violations = [f"{named(path)}: {what}" for path in [*SCRIPTS, *LEDGERS, *TELLS] for what in _left_out(path)]
    assert violations == []


def _left_out(path: Path) -> list[str]:
    try:
        return _LIKE_INCLUDE.findall(script(path).text.decode())
    except FileNotFoundError as error:
        return [f"no {Path(error.filename).name}"]


def test_no_part_is_left_over() -> None:
    """A part belongs to its own library; what is shared may be asked for by each."""
    wanted = {(library(path), name) for path in [*SCRIPTS, *PARTS, *LEDGERS, *LEDGER_PARTS] for name in asked(path)}
    by_any = {name for _, name in wanted}
    own = [path for path in [*PARTS, *LEDGER_PARTS] if library(path) != "redis_common"]
    shared = [path for path in PARTS if library(path) == "redis_common"]
    violations = [named(path) for path in own if (library(path), path.stem) not in wanted]
    violations += [named(path) for path in shared if path.stem not in by_any]
    assert violations == []


def test_no_payload_is_decoded_or_written_back() -> None:
    """JSON of a job stays text: a round trip through Lua changes numbers and empty lists. Our own arguments may be."""
    violations = [f"{named(path)}: {what}" for path in [*SCRIPTS, *PARTS] for what in _round_trips(code(path))]
    assert violations == []


def _round_trips(text: str) -> list[str]:
    written = ["cjson.encode"] * ("cjson.encode" in text)
    return written + [f"cjson.decode({what})" for what in _DECODED.findall(text) if what != "ARGV[1]"]


def test_nothing_is_written_but_by_a_script() -> None:
    """Only a script meets the fence. A wish that is published changes nothing."""
    found = {named(path): _WRITE.findall(source(path)) for path in BACKENDS.rglob("*.py")}
    violations = {name: commands for name, commands in found.items() if commands}
    assert violations == {}


def test_no_script_walks_the_key_space() -> None:
    scripts = [*SCRIPTS, *PARTS, *LEDGERS, *LEDGER_PARTS]
    violations = [f"{named(path)}: {found[0]}" for path in scripts for found in _WALK.finditer(code(path))]
    assert violations == []
