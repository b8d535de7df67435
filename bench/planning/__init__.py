"""How well stop-time diagnostics are planned: the planner beside bisection, pairing and dual-phase replay, on simulated faults."""
