"""What shows, beside pulse and stack, that a job gets on: step lines, heartbeat files, collectives, bytes, power."""
