"""Time that n8n takes from the failure of a stalled job until its execution is an error, by n8n's version.

Read in the sources: from 2.41.0 on main checks the execution each second or so, for up to 30 s, whether it has
succeeded or waits after all, and writes `error` over it only then (`workflow-runner.js`,
`MAX_STALLED_COUNT_GRACE_WINDOW_MS`; not in 2.40.7). Before, it writes at once. From 2.0.0 on a stalled job is failed
and never put back.
"""

from __future__ import annotations

from recovery.domain.n8n.versions import Version
from recovery.domain.time_units import SECOND

STALLED_GRACE = 30 * SECOND
_GRACE_SINCE: Version = (2, 41, 0)
_FAILS_SINCE: Version = (2, 0, 0)


def error_after(version: Version | None) -> int | None:
    """Returns the milliseconds at most until a failed job's execution is an error; None: the version is not known."""
    if version is None:
        return None
    return STALLED_GRACE if version >= _GRACE_SINCE else 0


def fails_stalled(version: Version) -> bool:
    """Returns True if this n8n fails a stalled job at once, and never puts it back."""
    return version >= _FAILS_SINCE
