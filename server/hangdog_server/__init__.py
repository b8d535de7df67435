"""The server: one per cluster; gathers captures from the agents, judges, remembers, and answers people."""
