"""The gates of all servers: followed by the leader, with every flip on record."""
