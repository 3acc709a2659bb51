"""Reads n8n's own database, in small steps: its tables from version to version, executions and their data."""
