"""Stands for `journalctl --output=json --follow` where no journal can be made: the output and the options that we use.

The entries are lines of JSON in the file that JOURNAL names. Cursors are as journalctl writes them.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
from pathlib import Path
from typing import Any

ALWAYS = ("__CURSOR", "__REALTIME_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "_BOOT_ID")


def main() -> None:
    asked = _asked()
    fields = {*ALWAYS, *asked.output_fields.split(",")}
    passed = 0 if asked.after_cursor is None else _number(asked.after_cursor)
    since = int(asked.since.removeprefix("@")) * 1_000_000 if asked.since else 0
    while os.getppid() != 1:
        lines = Path(os.environ["JOURNAL"]).read_bytes().splitlines(keepends=True)
        for line in lines[passed:]:
            if not line.endswith(b"\n"):
                break
            passed += 1
            entry = json.loads(line)
            if int(entry["__REALTIME_TIMESTAMP"]) >= since and (not asked.unit or _is_of(entry, asked.unit)):
                entry["__CURSOR"] = f"s=ab12;i={passed:x}"
                sys.stdout.write(json.dumps({name: value for name, value in entry.items() if name in fields}) + "\n")
                sys.stdout.flush()
        select.select([], [], [], 0.02)


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("all", "quiet", "no-pager", "no-tail", "follow"):
        parser.add_argument(f"--{flag}", action="store_true", required=True)
    parser.add_argument("--output", choices=["json"], required=True)
    parser.add_argument("--output-fields", required=True)
    parser.add_argument("--since")
    parser.add_argument("--after-cursor")
    parser.add_argument("--unit", action="append", default=[])
    return parser.parse_args()


def _number(cursor: str) -> int:
    name, _, number = cursor.partition(";i=")
    if name != "s=ab12":
        sys.exit("Failed to seek to cursor: Invalid argument")
    return int(number, 16)


def _is_of(entry: dict[str, Any], units: list[str]) -> bool:
    return entry.get("_SYSTEMD_UNIT") in units or (entry.get("_PID") == "1" and entry.get("UNIT") in units)


if __name__ == "__main__":
    main()
