"""Recognizes workers by parts of their command line, except programs that only have the word in it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from recovery.domain.redaction import redact

COMMAND_LENGTH = 200  # characters that are shown

# `sh -c "node worker.js"`, `tail -f worker.log` and `sudo -u worker node …` are no workers, what they start may be one.
_OTHERS = frozenset((
    # shells, and tools to read files and processes
    "sh", "bash", "dash", "ash", "zsh", "fish", "ksh", "csh", "tcsh", "busybox", "tmux", "screen", "script", "watch",
    "vi", "vim", "nvim", "nano", "emacs", "less", "more", "tail", "head", "cat", "grep", "egrep", "rg", "find", "sed",
    "awk", "tee", "xargs", "make", "git", "ssh", "sshd", "scp", "rsync", "curl", "wget", "strace", "gdb", "perf",
    "ps", "top", "htop", "pgrep", "pkill", "kill", "journalctl", "systemctl", "systemd-run", "logger",
    # what starts and supervises others
    "sudo", "su", "doas", "runuser", "gosu", "su-exec", "setpriv", "env", "nohup", "nice", "ionice", "timeout", "time",
    "npm", "npx", "pnpm", "yarn", "corepack", "nodemon", "tini", "dumb-init", "docker-init", "catatonit", "runsv",
    "s6-supervise", "supervisord", "docker", "dockerd", "docker-proxy", "podman", "conmon", "containerd", "runc",
    "containerd-shim", "containerd-shim-runc-v2", "crun", "kubectl", "kubelet",
    # servers that call their own processes workers, stores, and browsers with workers of the web's kind
    "nginx", "postgres", "php-fpm", "gunicorn", "apache2", "httpd", "redis-server", "redis-cli", "valkey-server",
    "valkey-cli", "chrome", "chromium", "chrome_crashpad", "chrome_crashpad_handler", "headless_shell",
    "chrome-headless-shell", "firefox", "firefox-esr", "msedge", "electron",
))  # fmt: skip
# Interpreters that run some of those as a script: `node /usr/bin/npm run worker`.
_SCRIPTS = frozenset(("npm", "npx", "pnpm", "yarn", "nodemon", "npm-cli.js", "npx-cli.js", "yarn.js", "supervisord"))
_MANAGE = frozenset(("up", "web", "scheduler", "monitor"))


def is_worker(command: Sequence[str], patterns: Sequence[str]) -> bool:
    """Returns True if the command contains a pattern, in any case, anywhere but in the directories of the program."""
    if not command or program(command) in _OTHERS or _is_ours(command):
        return False
    if len(command) > 1 and _base(command[1]) in _SCRIPTS:
        return False
    said = " ".join((_base(command[0]), *command[1:])).lower()
    return any(pattern.lower() in said for pattern in patterns)


def program(command: Sequence[str]) -> str:
    """Returns the name of the program, also of a login shell (`-bash`) and a title (`nginx: worker process`)."""
    return _base(command[0].partition(": ")[0]).partition(" ")[0].lstrip("-").rstrip(":") if command else ""


def shown_command(command: Sequence[str]) -> str:
    """Returns the command as it is shown: without secrets, and cut."""
    said = redact.text(" ".join(command))
    return said if len(said) <= COMMAND_LENGTH else f"{said[: COMMAND_LENGTH - 1]}…"


def _base(word: str) -> str:
    return word.rpartition("/")[2]


def _is_ours(command: Sequence[str]) -> bool:
    if any(word in ("recovery.monitor", "recovery.demo") for word in command):
        return True
    return any(_base(word) == "manage.py" and following in _MANAGE for word, following in pairwise(command))
