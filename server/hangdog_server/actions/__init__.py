"""What follows from a verdict: decided by `policy.py`, written down, and carried out by `reconcile.py` and `execute.py`."""
