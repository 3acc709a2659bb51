"""Discovers queues, reads their counts for the snapshot, and records their history."""
