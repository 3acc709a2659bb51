"""Writes the software bill of materials of what runs in production, as CycloneDX 1.6: `python deploy/sbom.py > FILE`.

Names, versions, markers and hashes come from deploy/locks/runtime.txt; licences, dependencies, and the scripts that
packages bring for the browser, from what is installed here. The same lock gives the same file: it has no time in it.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "deploy" / "locks" / "runtime.txt"
_ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\\n]+?))?\s*\\?$")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_REQUIRED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[(?P<extra>[A-Za-z0-9._-]+)\])?")
# Scripts that a package brings for the browser, under the name that lists of vulnerabilities know, and their version.
SCRIPTS = {
    "plotly": ("plotly.js", "package_data/plotly.min.js", re.compile(r"plotly\.js v(\d+\.\d+\.\d+)")),
    "django-htmx": ("htmx.org", "static/django_htmx/htmx-2.min.js", re.compile(r'version:"(\d+\.\d+\.\d+)"')),
}

Part = dict[str, Any]


def bill(lock: str, project: Part) -> Part:
    """Builds the document for this lock and this [project] of pyproject.toml."""
    components = [_component(*entry) for entry in _entries(lock)]
    root = _reference(project["name"], project["version"])
    known = {component["name"]: component["bom-ref"] for component in components}
    wanted = sorted(known[name] for name in map(_normal, project["dependencies"]) if name in known)
    extras = {_normal(line): found["extra"] for line in project["dependencies"] if (found := _REQUIRED.match(line))}
    dependencies = [{"ref": root, "dependsOn": wanted}, *(_dependency(one, known, extras) for one in components)]
    made: Part = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "pre-build"}],
            "component": {
                "type": "application",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
            },
        },
        "components": components,
        "dependencies": dependencies,
    }
    return made | {"serialNumber": uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(made)).urn}


def _entries(lock: str) -> list[tuple[str, str, str, list[str]]]:
    """Parses the lock: name, version, marker and hashes of each package."""
    blocks = re.split(r"\n(?=[A-Za-z0-9])", lock)
    return sorted(
        (_normal(entry["name"]), entry["version"], entry["marker"] or "", _HASH.findall(block))
        for block in blocks
        if (entry := _ENTRY.match(block.partition("\n")[0]))
    )


def _component(name: str, version: str, marker: str, hashes: list[str]) -> Part:
    made: Part = {
        "type": "library",
        "bom-ref": _reference(name, version),
        "name": name,
        "version": version,
        "purl": _reference(name, version),
        "hashes": [{"alg": "SHA-256", "content": content} for content in sorted(hashes)],
    }
    if licences := _licences(name):
        made["licenses"] = licences
    if scripts := _scripts(name):
        made["components"] = scripts
    if marker:
        made["properties"] = [{"name": "unstall:marker", "value": marker}]
    return made


def _licences(name: str) -> list[Part]:
    own = _metadata(name)
    if own is None:
        return []
    if expression := own.get("License-Expression"):
        return [{"expression": expression}]
    prefix = "License :: OSI Approved :: "
    classified = [line.removeprefix(prefix) for line in own.get_all("Classifier") or () if line.startswith(prefix)]
    written = classified or [line for line in (own.get("License") or "").splitlines()[:1] if line.strip()]
    return [{"license": {"name": name.strip()}} for name in written]


def _scripts(name: str) -> list[Part]:
    if name not in SCRIPTS or _metadata(name) is None:
        return []
    script, place, pattern = SCRIPTS[name]
    files = [file for file in metadata.files(name) or () if str(file).endswith(place)]
    found = pattern.search(str(files[0].read_text())) if files else None
    if not found:
        return []
    purl = f"pkg:npm/{script}@{found[1]}"
    return [{"type": "library", "bom-ref": purl, "name": script, "version": found[1], "purl": purl}]


def _dependency(component: Part, known: dict[str, str], extras: dict[str, str | None]) -> Part:
    """Lists what a package needs; of optional packages those that pyproject.toml asks for, as `psycopg[binary]`."""
    name = component["name"]
    own = _metadata(name)
    required = (own.get_all("Requires-Dist") if own else None) or ()
    asked = re.compile(rf"extra == ['\"]{extras.get(name) or 'none'}['\"]")
    names = {_normal(line) for line in required if "extra ==" not in line or asked.search(line)} & known.keys()
    return {"ref": component["bom-ref"], "dependsOn": sorted(known[name] for name in names)}


def _metadata(name: str) -> Any:
    """Returns None for a package that is not installed here, because its marker leaves it out."""
    try:
        return metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return None


def _normal(requirement: str) -> str:
    """Returns the name in a requirement, as package indexes compare names."""
    found = _REQUIRED.match(requirement)
    return re.sub(r"[-_.]+", "-", found["name"]).lower() if found else ""


def _reference(name: str, version: str) -> str:
    return f"pkg:pypi/{name}@{version}"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    json.dump(bill(LOCK.read_text("utf-8"), project), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
