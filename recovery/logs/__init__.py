"""Sources of log lines behind one contract (base.py)."""
