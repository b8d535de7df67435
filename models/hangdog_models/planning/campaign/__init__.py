"""Chooses which stop-time diagnostics to launch next, and on which machines: group testing under misses and false alarms.

The server leads campaigns by it over its agents, with the levels of the ladder as diagnostics (level_planner.py).

    belief = begin(machines, suspected, ...)           # prior.py: who is suspected, by how much, and what else it may be
    while isinstance(step := plan(belief, diagnostics, budget), Round):
        outcomes = run(step)                           # whoever launches, on real machines
        belief = update(belief, outcomes)              # belief.py: pass, fail and inconclusive become evidence
        budget = budget.after(step)
    step.evict, step.tell, step.because                # Stop: what was found, and what was not

A *diagnostic* is a kind of test with its time, price and error rates; a *launch* runs one on a group of machines, some
repetitions long; launches of one *round* run at once on disjoint groups (launch.py). A *fault* sits in a machine, in the
link between two, or in a leaf switch, and shows as often as its *failure mode* says (fault.py); several may be there at
once. A *belief* is the prior and every outcome since, in no order; what follows from it is worked out anew each time
(posterior.py over hypotheses.py), so outcomes commute and nothing is counted twice. Groups are formed by suspicion
(grouping.py), told apart by the information they promise (information_gain.py), and the best for its time is planned (round_planner.py). How sure
is sure, and what is worth a launch, may be tuned (thresholds.py).

A machine that passes is never called healthy: assurance.py says how probably each failure mode would have shown.
replay.py is the fixed grouping of ByteRobust (SOSP 2025), with a third phase, for those who want it without a planner.
"""
