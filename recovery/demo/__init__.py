"""A small company in a Redis: real BullMQ jobs and workers, so that there is something to see. No number is made up."""
