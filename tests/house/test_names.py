"""Names and first sentences of the product's modules: words that a stranger would search for, each for one thing."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER_LIMIT = 25
FRAGMENTS = 0.02  # of all docstrings
# Django finds a command by the module's name, and each one's class has this name.
COMMAND = "Command"
# People and buildings for mechanisms, participles and pronouns for things, gerunds for rooms.
HABITS = """
bearers beat beside casebook courier crew deeds depot desk discretion door duty house keeper mandate office pardon
patrol promise purse recall referee rounds sighting staff surroundings turn vigil warrant whereabouts wishes about alone
asked asking doing done holding joined joining judged judging learned left looking meant proven sifting seeing settled
settling said sought standing taken telling told truths watching whole written
"""
# Plain within a longer name (`lost_executions`), a riddle by themselves.
ALONE = "before found given gone held kept known lost of one part post seen shown"
# A first word that goes on with a name instead of saying something.
OPENERS = """
All And As At Because Before Beside Between But By Each Every Everything From How In Its Never No Nobody None Not
Nothing Of On One Only Or Since So Some Somebody Something Than That These Those Though To Under Until What Whatever
When Where Whether Which While Who Whoever Whose Why With Without Yes
"""


@cache
def product() -> dict[str, ast.Module]:
    paths = (path for top in ("recovery", "dashboard") for path in sorted((ROOT / top).rglob("*.py")))
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8"))
        for path in paths
        if "migrations" not in path.parts
    }


def test_a_class_name_stands_for_one_class() -> None:
    bearers = defaultdict(list)
    for name, tree in product().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name != COMMAND and not node.name.startswith("_"):
                bearers[node.name].append(name)
    assert {name: files for name, files in bearers.items() if len(files) > 1} == {}


def test_no_module_or_folder_is_named_by_a_habit() -> None:
    habits, alone = set(HABITS.split()), set(ALONE.split())
    names = [(name, Path(name).with_suffix("").parts) for name in product()]
    words = {name: {word for part in parts for word in part.split("_")} for name, parts in names}
    assert [name for name, parts in names if words[name] & habits or set(parts) & alone] == []


def test_a_folder_is_seen_at_one_glance() -> None:
    sizes = Counter(str(Path(name).parent) for name in product() if not name.endswith("__init__.py"))
    assert {folder: size for folder, size in sizes.items() if size > FOLDER_LIMIT} == {}


def test_a_module_and_a_folder_never_share_a_name() -> None:
    folders = {str(Path(name).parent) for name in product()}
    assert [name for name in product() if name.removesuffix(".py") in folders] == []


def test_docstrings_open_with_a_sentence() -> None:
    openers = set(OPENERS.split())
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    opened = [
        (f"{name}:{getattr(node, 'lineno', 1)}", said)
        for name, tree in product().items()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and (said := ast.get_docstring(node))
    ]
    fragments = [f"{place}: {said.splitlines()[0]}" for place, said in opened if said.split()[0].strip(",:") in openers]
    share = len(fragments) / len(opened)
    assert share <= FRAGMENTS, fragments
