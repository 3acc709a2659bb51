"""Defines the version of Unstall that the pages, /healthz, /metrics and `manage.py --version` show."""

VERSION = "0.1.0"  # as in pyproject.toml
