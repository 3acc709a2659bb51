"""Compares n8n's jobs with its executions, on an interval of its own; it only reads."""
