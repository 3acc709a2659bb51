"""Runs other programs as child processes: none outlives its parent, all stop in order, and a dead one is restarted."""
