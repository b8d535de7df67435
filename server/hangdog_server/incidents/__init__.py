"""An incident from its beginning to its verdict: start at `registry.py`, then `incident_run.py`, its states in order."""
