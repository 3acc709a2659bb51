"""What the readers of Bull and BullMQ have in common."""
