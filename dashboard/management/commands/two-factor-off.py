"""`manage.py two-factor-off NAME`: turns off the second factor of a user who has lost it."""  # noqa: N999 - file name

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from dashboard.accounts import two_factor, user_changes
from dashboard.models import User
from recovery.actions.audit import audit_log
from recovery.management import arguments


class Command(BaseCommand):
    help = (
        "Turn a user's two-factor authentication off and end their sessions: they then log in with their password only."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="the user's name")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["name"]).first()
        if user is None:
            raise CommandError(f"There is no user {options['name']!r}.")
        with transaction.atomic():
            if not two_factor.turn_off(user):
                raise CommandError(f"{user.username} has no two-factor authentication.")
            user_changes.end_sessions(user)
            audit_log.note(arguments.actor(), "two-factor off", body={"person": user.username})
        self.stdout.write(f"Two-factor authentication of {user.username} is off; their sessions are ended.")
