"""Commands that have something done to machines."""
