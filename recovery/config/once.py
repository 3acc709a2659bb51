"""[once]: how long the ledger keeps what, and how much of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recovery.config.readers import Problems, read_table
from recovery.config.schema import ONCE
from recovery.domain.ages import DAY
from recovery.domain.once import Terms


def read_once(written: Mapping[str, Any], folder: Path, problems: Problems) -> Terms:
    values = read_table(written, ONCE, "once.", folder, problems)
    return Terms(
        keep=int(values["keep_days"] * DAY),
        linger=int(values["keep_lapsed_days"] * DAY),
        keys=int(values["keys"]),
        bytes=int(values["megabytes"]) << 20,
    )
