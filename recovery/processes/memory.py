"""Memory that many things held for a while goes back to the system when they are gone.

The C library gives back every free page when it is asked to. Python's own allocator gives back a MB when nothing at all
is left in it, so some of it stays here and is used again; a process that is started with PYTHONMALLOC=malloc has none
of that, and pays with slower streams (docs/performance.md).
"""

from __future__ import annotations

import ctypes
import gc


def give_back() -> bool:
    """Some ms of work. False where the C library is none that can (only glibc is)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True
