"""Monitor: the agent that each server runs. It writes one small hash to the state store, without Django or database."""
