"""Memory that many things held for a while goes back to the system when they are gone.

Python's own allocator gives back a MB when nothing at all is left in it, and something nearly always is. The C library
gives back every free page when it is asked to. So who holds much for a while, as a web process does for its streams,
takes the C library's from its start, with few free pieces kept aside for each thread; what that costs is in
docs/performance.md.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys

ENVIRON = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=2"}
_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # only glibc has it


def choose() -> None:
    """Begins this process anew, under its own number, with the C library's allocator.

    Whoever has chosen one keeps it.
    """
    if _TRIM and "PYTHONMALLOC" not in os.environ:
        os.environ |= ENVIRON | os.environ
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 -- the command that runs already


def give_back() -> bool:
    """Some ms of work. False where the C library is none that can."""
    gc.collect()
    if not _TRIM:
        return False
    _TRIM(0)
    return True
