"""Gates of all servers: evaluated by the leader, with each opening and closing recorded."""
