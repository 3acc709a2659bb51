"""Runs a program under what a unit of deploy/ forbids.

`python -m tests.support.processes.confined UNIT [ARGUMENTS OF PYTHON]`

systemd itself does not run where tests do. So its lists of system calls are asked of systemd-analyze and laid on by
libseccomp, as systemd does it; with them no capabilities, no new privileges, the umask, and no memory that is both
written and executed. Without arguments it runs what the unit's ExecStart says. What a unit does by mounts is not tried.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

LIBRARY = "libseccomp.so.2"
_ALLOW = 0x7FFF0000
_PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_SET_MDWE = 38, 24, 65
_EQUAL, _MASKED_EQUAL = 4, 7
_NEW_NAMESPACES = 0x7E020080  # all CLONE_NEW… flags
_LAST_CAPABILITY = 63


class Argument(ctypes.Structure):
    """struct scmp_arg_cmp: a condition on one argument of a system call."""

    _fields_ = (
        ("number", ctypes.c_uint),
        ("comparison", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def directives(unit: Path) -> dict[str, list[str]]:
    """Parses [Service]: each name with all values that it was given."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in unit.read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def allowed(filters: list[str]) -> set[str]:
    """Returns the system calls that these SystemCallFilter= lines leave, as systemd reads them."""
    known = _groups()
    found = _expanded("@default", known)
    for line in filters:
        names = {call for word in line.removeprefix("~").split() for call in _expanded(word, known)}
        found = found - names if line.startswith("~") else found | names
    return found | _expanded("@default", known)


def _groups() -> dict[str, list[str]]:
    said = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    group = ""
    for line in said.splitlines():
        word = line.strip()
        if line.startswith("@"):
            group = word
            found[group] = []
        elif line.startswith(" ") and group and not word.startswith("#"):
            found[group].append(word)
        elif word and not line.startswith(" "):
            group = ""  # the kernel's calls that no group has
    return found


def _expanded(word: str, known: dict[str, list[str]]) -> set[str]:
    if not word.startswith("@"):
        return {word}
    return {call for member in known[word] for call in _expanded(member, known)}


def confine(own: dict[str, list[str]]) -> None:
    """Lays on this process, and on all that it will start, what the unit forbids."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused for a user who has none to drop
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    os.umask(int(own["UMask"][0], 8))
    if own.get("MemoryDenyWriteExecute") == ["yes"]:
        libc.prctl(_PR_SET_MDWE, 1, 0, 0, 0)  # Linux 6.3
    _filter(allowed(own["SystemCallFilter"]), own["RestrictAddressFamilies"][0].split())


def _filter(calls: set[str], families: list[str]) -> None:
    library = ctypes.CDLL(LIBRARY)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(_refused(errno.EPERM)))
    numbers = {call: library.seccomp_syscall_resolve_name(call.encode()) for call in calls}
    rules = [(call, number, ()) for call, number in numbers.items() if number >= 0]
    for call, number, _ in rules:
        if call not in ("socket", "clone", "clone3", "unshare", "setns"):
            _check(library.seccomp_rule_add(context, ctypes.c_uint32(_ALLOW), number, 0), call)
    for family in families:
        is_family = (Argument * 1)(Argument(0, _EQUAL, getattr(socket, family), 0))
        _check(
            library.seccomp_rule_add_array(context, ctypes.c_uint32(_ALLOW), numbers["socket"], 1, is_family), family
        )
    no_namespace = (Argument * 1)(Argument(0, _MASKED_EQUAL, _NEW_NAMESPACES, 0))
    _check(library.seccomp_rule_add_array(context, ctypes.c_uint32(_ALLOW), numbers["clone"], 1, no_namespace), "clone")
    # The C library then takes clone, whose flags can be seen.
    number = library.seccomp_syscall_resolve_name(b"clone3")
    _check(library.seccomp_rule_add(context, ctypes.c_uint32(_refused(errno.ENOSYS)), number, 0), "clone3")
    _check(library.seccomp_load(context), "load")


def _refused(number: int) -> int:
    return 0x00050000 | number


def _check(status: int, what: str) -> None:
    if status:
        raise OSError(-status, what)


def main(arguments: list[str]) -> None:
    own = directives(Path(arguments[0]))
    command = arguments[1:] or own["ExecStart"][0].split()[1:]
    confine(own)
    os.execv(sys.executable, [sys.executable, *command])


if __name__ == "__main__":
    main(sys.argv[1:])
