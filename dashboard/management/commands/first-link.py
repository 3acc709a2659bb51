"""`manage.py first-link`: a one-time link for the first admin."""  # noqa: N999 - the command has the name of the file

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from dashboard.invitations import first_link
from recovery import config
from recovery.processes.address import UNIX, origin


class Command(BaseCommand):
    help = "Print a one-time link that makes the first admin. It works for 24 hours; earlier ones stop working."

    def handle(self, *args: Any, **options: Any) -> None:
        path = first_link()
        if path is None:
            raise CommandError("There is an admin already. They make links for others on the page Users.")
        public = config.current().public_url
        self.stdout.write(origin(public, settings.BIND) + path)
        if not public and settings.BIND.startswith(UNIX):
            self.stderr.write("Set UNSTALL_PUBLIC_URL to where people reach the pages; this link only guesses.")
