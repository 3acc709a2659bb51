"""Fire drills as values: what is asked for, what is measured, and what it comes to. Times are milliseconds."""
