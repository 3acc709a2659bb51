"""Runs scanners and performs their actions: one run at a time, through the action runner, within their permissions."""
