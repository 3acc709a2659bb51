"""[idempotency]: how long the ledger keeps its keys, and how many."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recovery.config.schema import IDEMPOTENCY
from recovery.config.validation import ConfigProblems, read_table
from recovery.domain.idempotency import IdempotencyLimits
from recovery.domain.time_units import DAY


def read_idempotency(written: Mapping[str, Any], folder: Path, problems: ConfigProblems) -> IdempotencyLimits:
    values = read_table(written, IDEMPOTENCY, "idempotency.", folder, problems)
    return IdempotencyLimits(
        keep=int(values["keep_days"] * DAY),
        linger=int(values["keep_expired_days"] * DAY),
        keys=int(values["keys"]),
        bytes=int(values["megabytes"]) << 20,
    )
