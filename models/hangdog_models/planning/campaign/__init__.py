"""Chooses the next stop-time diagnostics and their machines: group testing with misses and false alarms.

The server runs campaigns with it over its agents; the diagnostics are the test levels (level_planner.py).

    belief = begin(machines, suspected, ...)           # prior.py: which are suspected, by how much, and what else it may be
    while isinstance(step := plan(belief, diagnostics, budget), CampaignRound):
        outcomes = run(step)                           # launches the tests, on real machines
        belief = update(belief, outcomes)              # belief.py: pass, fail and inconclusive become evidence
        budget = budget.after(step)
    step.evict, step.tell, step.reason                 # Stop: what was found, and why it ended

- A *diagnostic* is a kind of test with its time, price and error rates.
- A *launch* runs one on a group of machines, with some repetitions.
- Launches of one *round* run at once on disjoint groups (launch.py).
- A *fault* is in a machine, in the link between two, or in a leaf switch. There may be several.
- Its *failure mode* says how often it shows (fault.py).
- A *belief* is the prior and every outcome since, in no order.

The posterior is computed from scratch each time (posterior.py over hypotheses.py), so outcomes commute and none counts
twice. Groups are formed by suspicion (grouping.py) and compared by the information they promise (information_gain.py).
The best for its time is planned (round_planner.py). Thresholds may be tuned (thresholds.py).

A machine that passes is never called healthy: assurance.py says how probably each failure mode would have shown.
replay.py is the fixed grouping of ByteRobust (SOSP 2025), with a third phase, for use without a planner.
"""
