"""The slow looks: what has been stuck for long, what failed, and rows that a start left behind."""
