"""Actions on queues and jobs, on scanners, policies and drills: all changes go through here, and into the audit."""
