"""Slow scanners: jobs that have been stuck for long, failed jobs, and rows that a stopped process left running."""
