"""Active jobs looked at every few seconds: verdicts, incidents, and whether the store itself can be believed."""
