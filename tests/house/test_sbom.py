"""The bill of materials is CycloneDX, holds all that the lock holds, and is the same for the same lock.

The schema here is of the parts that we write; against the whole one of CycloneDX 1.6 it was checked when it was made.
"""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest

ROOT = Path(__file__).resolve().parents[2]
LOCK = (ROOT / "deploy" / "locks" / "runtime.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_REF = {"type": "string", "minLength": 1}
_COMPONENT: dict[str, Any] = {
    "type": "object",
    "required": ["type", "name", "version", "bom-ref"],
    "additionalProperties": False,
    "properties": {
        "type": {"enum": ["application", "library"]},
        "bom-ref": _REF,
        "name": _REF,
        "version": _REF,
        "description": {"type": "string"},
        "purl": {"type": "string", "pattern": r"^pkg:(pypi|npm)/[a-z0-9.-]+@\S+$"},
        "hashes": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["alg", "content"],
                "additionalProperties": False,
                "properties": {"alg": {"const": "SHA-256"}, "content": {"pattern": "^[a-f0-9]{64}$"}},
            },
        },
        "licenses": {
            "type": "array",
            "items": {
                "oneOf": [
                    {
                        "type": "object",
                        "required": ["expression"],
                        "additionalProperties": False,
                        "properties": {"expression": _REF},
                    },
                    {
                        "type": "object",
                        "required": ["license"],
                        "additionalProperties": False,
                        "properties": {
                            "license": {"type": "object", "required": ["name"], "properties": {"name": _REF}}
                        },
                    },
                ]
            },
        },
        "components": {"type": "array", "items": {"type": "object"}},
        "properties": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": _REF, "value": _REF}, "additionalProperties": False},
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": ["bomFormat", "specVersion"],
    "additionalProperties": False,
    "properties": {
        "bomFormat": {"const": "CycloneDX"},
        "specVersion": {"const": "1.6"},
        "serialNumber": {"pattern": "^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"},
        "version": {"type": "integer", "minimum": 1},
        "metadata": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"lifecycles": {"const": [{"phase": "pre-build"}]}, "component": _COMPONENT},
        },
        "components": {"type": "array", "uniqueItems": True, "items": _COMPONENT},
        "dependencies": {
            "type": "array",
            "uniqueItems": True,
            "items": {
                "type": "object",
                "required": ["ref"],
                "additionalProperties": False,
                "properties": {"ref": _REF, "dependsOn": {"type": "array", "uniqueItems": True, "items": _REF}},
            },
        },
    },
}


@pytest.fixture(scope="module")
def bill() -> Any:
    return runpy.run_path(str(ROOT / "deploy" / "sbom.py"))["bill"]


def test_it_is_cyclonedx(bill: Any) -> None:
    fastjsonschema.compile(SCHEMA)(bill(LOCK, PROJECT))


def test_it_holds_every_pin_with_every_hash(bill: Any) -> None:
    components = bill(LOCK, PROJECT)["components"]
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", LOCK, re.MULTILINE)
    assert [(one["name"], one["version"]) for one in components] == sorted((name.lower(), pin) for name, pin in pins)
    assert len(components) > 30
    hashes = {found["content"] for one in components for found in one["hashes"]}
    assert hashes == set(re.findall(r"sha256:([0-9a-f]{64})", LOCK))


def test_what_is_needed_is_among_them_and_each_is_needed(bill: Any) -> None:
    made = bill(LOCK, PROJECT)
    refs = {one["bom-ref"] for one in made["components"]}
    needs = {one["ref"]: set(one["dependsOn"]) for one in made["dependencies"]}
    root = made["metadata"]["component"]["bom-ref"]
    assert set(needs) == refs | {root}
    assert set().union(*needs.values()) <= refs
    of_other_pythons = {one["bom-ref"] for one in made["components"] if "properties" in one}
    assert refs - set().union(*needs.values()) - of_other_pythons == set()


def test_licences_and_the_scripts_of_browsers_are_told(bill: Any) -> None:
    components = {one["name"]: one for one in bill(LOCK, PROJECT)["components"]}
    assert components["django"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    scripts = {script["name"] for one in components.values() for script in one.get("components", ())}
    assert scripts == {"plotly.js", "htmx.org"}


def test_the_same_lock_gives_the_same_document_and_another_one_another(bill: Any) -> None:
    first, again = bill(LOCK, PROJECT), bill(LOCK, PROJECT)
    assert first == again
    assert bill(LOCK.replace("django==", "django==9.", 1), PROJECT)["serialNumber"] != first["serialNumber"]
