"""Measurements of the numbers we promise, peers beside us in the same run. `python -m bench --help`."""
