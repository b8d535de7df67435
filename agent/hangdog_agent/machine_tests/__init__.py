"""Stop-time diagnosis: one level a file, each a test of this machine in child processes that cannot outlive their deadline."""
