"""`manage.py web` with constants changed before it starts: `limited_web {"dashboard.live.hub.BEAT_SECONDS": 0.2}`.

Each must be one that its own module looks up whenever it is needed: other modules may have been imported already.
"""

from __future__ import annotations

import importlib
import json
import os
import sys

os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"


def main(limits: str) -> None:
    import django
    from django.core.management import execute_from_command_line

    django.setup()
    for name, value in json.loads(limits).items():
        module, _, constant = name.rpartition(".")
        getattr(importlib.import_module(module), constant)
        setattr(importlib.import_module(module), constant, value)
    execute_from_command_line(["manage.py", "web"])


if __name__ == "__main__":
    main(sys.argv[1])
