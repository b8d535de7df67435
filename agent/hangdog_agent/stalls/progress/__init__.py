"""Progress signals besides CPU activity and stacks: step lines, heartbeat files, collectives, bytes, power."""
