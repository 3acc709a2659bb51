"""Where log lines come from: several sources behind one contract (base.py)."""
