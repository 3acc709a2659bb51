"""Opens files under a root. No link is followed on the way, so that what is put there meanwhile leads nowhere."""

from __future__ import annotations

import errno
import os
import stat

QUIET_NS = 5 * 10**9  # a last line without an end is taken for whole when nothing was written for so long
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe without a writer would be waited for


class NotAPlainFile(OSError):
    """Raised for a device, a pipe, a folder or a link."""


def open_under(root: str, path: str) -> int:
    """Opens a file. `path` begins with `root`; both are real paths. Raises OSError."""
    *folders, name = path[len(root) + 1 :].split("/")
    folder = os.open(root, _FOLDER)
    try:
        for part in folders:
            deeper = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = deeper
        file = os.open(name, _FILE, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise NotAPlainFile(error.errno, error.strerror) from error
        raise
    finally:
        os.close(folder)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise NotAPlainFile(errno.EINVAL, "is not a file")
