"""Which version of Unstall this is, as the pages, /healthz, /metrics and `manage.py --version` say it."""

VERSION = "0.1.0"  # as in pyproject.toml
