"""Values of fire drills: the plan, the measured rounds, the summary. Times are milliseconds."""
