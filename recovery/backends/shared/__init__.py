"""Reads and scripts that Bull and BullMQ have in common."""
