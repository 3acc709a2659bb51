"""What two people do at the same moment, on both databases, with real threads and real connections."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stores.furnished import KINDS

ROOT = Path(__file__).parents[3]
SCRIPT = """
import django; django.setup()
from concurrent.futures import ThreadPoolExecutor
from django.db import connection
from dashboard.accounts import invitations, user_changes
from dashboard.accounts.roles import UserRole
from dashboard.models import User
from django.conf import settings

settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # nobody guesses them here
token = invitations.first_link().rpartition("/")[2]

def closing(act):
    def acting(argument):
        try:
            return act(argument)
        except (invitations.LinkSpent, user_changes.LastAdmin):
            return None
        finally:
            connection.close()
    return acting

with ThreadPoolExecutor(6) as threads:
    accept = closing(lambda name: invitations.accept(token, username=name, password="a quiet night, please"))
    came = [user for user in threads.map(accept, "abcdef") if user]
    print("came in:", len(came), User.objects.count())
    both = [User.objects.get(), User.objects.create(username="z", role=UserRole.ADMIN)]
    demote = closing(lambda user: user_changes.set_role(user, UserRole.VIEWER) or "gone")
    print("gone:", sum(done == "gone" for done in threads.map(demote, both)))
    print("left:", User.objects.filter(role=UserRole.ADMIN).count())
"""


@pytest.fixture(params=KINDS)
def database(request: pytest.FixtureRequest, our_database: Callable[[str, Path], str], tmp_path: Path) -> str:
    return our_database(request.param, tmp_path)


def test_one_wins_a_link_and_one_admin_is_always_left(database: str, tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "DATABASE_URL": database,
        "UNSTALL_DATA_DIR": str(tmp_path),
        "DJANGO_SETTINGS_MODULE": "dashboard.settings",
    }
    command = [sys.executable, "-c", SCRIPT]
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["came in: 1 1", "gone: 1", "left: 1"]
