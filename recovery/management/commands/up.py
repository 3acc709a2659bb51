"""Starts everything on one machine with one command, and stops it with one Ctrl-C."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import MutableMapping
from io import StringIO
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connections

from recovery import config
from recovery.errors import ConfigError
from recovery.monitor import server_id
from recovery.processes.all_in_one import AllInOne, AllInOneNotStarted, AllInOnePlan, StoppedWhileStarting
from recovery.processes.directory_lock import DirectoryLocked
from recovery.processes.listen_address import ListenAddress, origin
from recovery.processes.supervisor import WRONG_CALL, ChildMisconfigured

OWNER_ONLY = 0o700
ONLY_SERVER = "this-server"


class Command(BaseCommand):
    help = (
        "Start everything on this machine: web, scheduler, monitor, a Valkey for the state, and a demo when no Redis "
        "is configured."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        plan = self._plan()
        box = AllInOne(plan, self._say)
        try:
            box.open()
            os.environ.update(box.urls)
            os.environ.setdefault("UNSTALL_LOG_LEVEL", "warning")  # successes do not belong on a terminal
            name_server(os.environ)
            config.current.cache_clear()
            self._prepare()
            plays = plan.plays and self._has_demo()
            box.start(with_demo=plays)
            self.stdout.write(self._welcome(plan, plays=plays))
            box.tend()
            self.stdout.write("Stopping all processes. Press Ctrl-C again to exit immediately.")
        except DirectoryLocked as other:
            raise CommandError(self._taken(plan, other.holder), returncode=WRONG_CALL) from None
        except ChildMisconfigured as name:
            raise CommandError(f"{name} is invalid.", returncode=WRONG_CALL) from None
        except DatabaseError as error:
            raise CommandError(f"The database cannot be used (DATABASE_URL): {error}") from None
        except AllInOneNotStarted as reason:
            raise CommandError(f"Unstall did not start: {reason}.") from None
        except StoppedWhileStarting:
            pass
        finally:
            box.close()

    def _plan(self) -> AllInOnePlan:
        try:
            address = ListenAddress.parse(settings.BIND)
        except ValueError as problem:
            raise CommandError(f"UNSTALL_BIND: {problem}", returncode=WRONG_CALL) from None
        if why := address.taken():
            raise CommandError(
                f"Cannot listen on {settings.BIND}: {why}. Is Unstall running already? "
                f"Otherwise choose another port: UNSTALL_BIND={address.host}:{address.port + 1}",
                returncode=WRONG_CALL,
            )
        directory = Path(settings.DATA_DIR)
        directory.mkdir(parents=True, exist_ok=True, mode=OWNER_ONLY)
        directory.chmod(OWNER_ONLY)
        return AllInOnePlan(
            directory=directory,
            manage=Path(settings.BASE_DIR) / "manage.py",
            address=address,
            embeds=config.current().state is None,
            plays=not config.current().places,
        )

    def _prepare(self) -> None:
        """Migrates the database, then closes all connections: the command keeps none while it waits."""
        call_command("migrate", interactive=False, verbosity=0)
        connections.close_all()

    def _has_demo(self) -> bool:
        if importlib.util.find_spec("bullmq"):
            return True
        self._say("demo", "left out, because the Python package bullmq is not installed (extra `demo`)")
        return False

    def _welcome(self, plan: AllInOnePlan, *, plays: bool) -> str:
        link, what = _first_link(), "Open this link to create the admin account (single use, valid for 24 hours):"
        if not link:
            link, what = f"{origin(config.current().public_url, settings.BIND)}/", "Unstall is ready:"
        watched = _targets()
        if plan.plays:
            watched = f"{'the demo' if plays else 'nothing'}; set UNSTALL_REDIS_URL to watch your own Redis"
        return f"\n{what}\n\n    {link}\n\nWatching {watched}. Press Ctrl-C to stop.\n"

    def _say(self, name: str, line: str) -> None:
        """Prints one line of a child process; a terminal that is gone must not stop the children."""
        with contextlib.suppress(OSError):
            sys.stderr.write(f"{name:<9} | {line}\n")
            sys.stderr.flush()

    def _taken(self, plan: AllInOnePlan, holder: str) -> str:
        who = f"process {holder}" if holder else "another process"
        return f"{plan.directory} is in use by {who}. Stop it, or set another directory: UNSTALL_DATA_DIR=…"


def _first_link() -> str:
    """Returns a one-time link; "" when there is an admin already. The command is part of `dashboard`, so it is called
    by name.
    """
    written = StringIO()
    try:
        call_command("first-link", stdout=written, stderr=StringIO())
    except CommandError:
        return ""
    finally:
        connections.close_all()
    return written.getvalue().strip()


def _targets() -> str:
    return ", ".join(deployment.target for deployment in config.current().places)


def name_server(environ: MutableMapping[str, str]) -> None:
    """Names the server in a container without a configured name: it is the only server, so any name will do."""
    if any(environ.get(variable) for variable in server_id.VARIABLES):
        return  # the monitor reports a wrong one
    try:
        server_id.server_id(environ)
    except ConfigError:
        environ["UNSTALL_SERVER_ID"] = ONLY_SERVER
