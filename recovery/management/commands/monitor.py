"""Runs the monitor, like `python -m recovery.monitor`, where the whole project is installed."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.core.management.base import BaseCommand

from recovery.monitor.agent import run


class Command(BaseCommand):
    help = "Sample this server's CPU, load and memory, and send them and its log lines to the state store."
    requires_system_checks = ()  # it needs neither the database nor the deployments

    def handle(self, *args: Any, **options: Any) -> None:
        sys.exit(run(os.environ))
