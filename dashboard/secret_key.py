"""Loads the secret key: from the environment, or made once and kept in the data directory for its owner alone."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from dashboard.env import Environment

FILE = "secret-key"
LEAST = 32  # characters; below that a key can be guessed from one signature
_NAME = "UNSTALL_SECRET_KEY"
_FALLBACKS = "UNSTALL_SECRET_KEY_FALLBACKS"


def key(env: Environment, directory: Path) -> str:
    """Returns the key to use. Where none can be had, a temporary one: the start is refused anyway, with the reason."""
    written = env.text(_NAME)
    if written and len(written) < LEAST:
        env.refuse(_NAME, f"is shorter than {LEAST} characters.", "Unset it, and Unstall generates and stores one.")
    if written:
        return written
    try:
        return stored_key(directory)
    except OSError as error:
        reason = f"{directory} cannot be written: {error.strerror}."
        env.refuse("UNSTALL_DATA_DIR", reason, "Use a directory that belongs to the user who runs this process.")
        return secrets.token_urlsafe(50)


def fallbacks(env: Environment) -> list[str]:
    """Returns former keys, one a line or separated by blanks: they verify what they signed, and sign nothing."""
    found = env.text(_FALLBACKS).split()
    if any(len(one) < LEAST for one in found):
        env.refuse(
            _FALLBACKS, f"holds a key that is shorter than {LEAST} characters.", "Write previous keys unchanged."
        )
    return found


def stored_key(directory: Path) -> str:
    """Reads the key, or makes it. Several processes may start at once: the one that links the file first decides."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = directory / FILE
    if not path.exists():
        _make(path)
    return path.read_text(encoding="ascii").strip()


def _make(path: Path) -> None:
    """Writes a temporary file, which is its owner's alone, and links it into place: no reader ever sees half a key."""
    with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.") as aside:
        aside.write(secrets.token_urlsafe(50))
        aside.flush()
        with suppress(FileExistsError):
            os.link(aside.name, path)
