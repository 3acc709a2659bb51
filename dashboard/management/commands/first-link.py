"""`manage.py first-link`: prints a one-time link for the first admin."""  # noqa: N999 - the command has the name of the file

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from dashboard.accounts.invitations import first_link
from recovery import config
from recovery.processes.listen_address import UNIX, origin


class Command(BaseCommand):
    help = "Print a one-time link that creates the first admin. It works for 24 hours; earlier links stop working."

    def handle(self, *args: Any, **options: Any) -> None:
        path = first_link()
        if path is None:
            raise CommandError("There is already an admin, who can invite users on the Users page.")
        public = config.current().public_url
        self.stdout.write(origin(public, settings.BIND) + path)
        if not public and settings.BIND.startswith(UNIX):
            self.stderr.write(
                "Set UNSTALL_PUBLIC_URL to the public URL of the web interface; the host in this link is a guess."
            )
