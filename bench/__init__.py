"""Measurements of the numbers we promise, peers beside us in the same run. `python -m bench --help`."""

import os

from tests.support.stores.keys import SECRET_KEY

# What the processes under test keep in the state store is signed: whoever measures reads it with their key.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "dashboard.settings")
os.environ.setdefault("UNSTALL_SECRET_KEY", SECRET_KEY)
