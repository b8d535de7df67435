"""Healthy phases of real trainers, recorded as the agent's watch would see them, and replayed for hundreds of run-hours."""
