"""Returns freed memory to the system, by malloc_trim of glibc.

Python's own allocator returns a MB only when nothing at all is left in it, and something nearly always is. The C
library returns every free page when it is asked to. So a process that holds much for a while, as a web process does for
its streams, uses the C library's allocator from its start, with few free chunks cached for each thread; what that costs
is in docs/performance.md.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys

ENVIRON = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=2"}
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it


def use_libc_malloc() -> None:
    """Restarts this process, with the same pid, with the C library's allocator.

    A PYTHONMALLOC that is already set is kept.
    """
    if _TRIM and "PYTHONMALLOC" not in os.environ:
        os.environ |= ENVIRON | os.environ
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 -- the command that runs already


def trim() -> bool:
    """Collects garbage and trims the heap, which takes some ms; returns False if the C library has no malloc_trim."""
    gc.collect()
    if not _TRIM:
        return False
    _TRIM(0)
    return True
