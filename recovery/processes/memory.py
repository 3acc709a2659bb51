"""Memory that many things held for a while goes back to the system when they are gone.

Python's own allocator gives back a MB when nothing at all is left in it, which after a thousand readers is never: here
and there something stays. The C library's gives back every free page when it is asked to, so a web process uses that.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Mapping

ENVIRON: Mapping[str, str] = {"PYTHONMALLOC": "malloc"}  # for a web process, before it starts


def give_back() -> bool:
    """Some ms of work. False where the C library is none that can (only glibc is)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return False
    trim(0)
    return True
