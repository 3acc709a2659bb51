"""[idempotency]: how long the ledger keeps its keys, and how many."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recovery.config.readers import Problems, read_table
from recovery.config.schema import IDEMPOTENCY
from recovery.domain.ages import DAY
from recovery.domain.idempotency import Terms


def read_idempotency(written: Mapping[str, Any], folder: Path, problems: Problems) -> Terms:
    values = read_table(written, IDEMPOTENCY, "idempotency.", folder, problems)
    return Terms(
        keep=int(values["keep_days"] * DAY),
        linger=int(values["keep_expired_days"] * DAY),
        keys=int(values["keys"]),
        bytes=int(values["megabytes"]) << 20,
    )
